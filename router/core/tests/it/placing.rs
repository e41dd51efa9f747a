//! Where requests go: one scenario per feature.

use expect_test::expect;

use crate::dsl::check;

#[test]
fn empty_fleet_has_nobody_and_says_why() {
    check(
        "
        build
        decide key=k
        node a models=n
        build
        decide key=k
        decide key=k model=n allowed=us
        decide key=k
        decide key=k model=n
        ",
        expect![[r#"
            nobody:
            nobody: no_model=1
            nobody: not_allowed=1
            nobody: no_model=1
            placed: a(primary 60.000ms cap 2)
        "#]],
    );
}

#[test]
fn unmeasured_nodes_are_placed_by_distance_then_by_default() {
    check(
        "
        here 48.85,2.35
        node paris at=48.86,2.30
        node tokyo at=35.68,139.69
        node unknown
        build
        show paris
        show unknown
        show tokyo
        decide key=k
        decide
        ",
        expect![[r#"
            paris: healthy horizon 0 leases 0 load 0.000 floor ? service ? errors 0.0000% failures 0
            unknown: healthy horizon 2 leases 0 load 0.000 floor ? service ? errors 0.0000% failures 0
            tokyo: healthy horizon 3 leases 0 load 0.000 floor ? service ? errors 0.0000% failures 0
            placed: paris(primary 11.057ms cap 2) unknown(farther 60.000ms cap 2) tokyo(farther 156.704ms cap 2)
            placed: paris(random 11.057ms cap 2) unknown(farther 60.000ms cap 2) tokyo(farther 156.704ms cap 2)
        "#]],
    );
}

#[test]
fn client_place_stands_in_for_the_routers() {
    check(
        "
        node paris at=48.86,2.30
        node tokyo at=35.68,139.69
        build
        policy nearest
        decide client=35,139
        decide client=48,2
        decide
        ",
        expect![[r#"
            placed: tokyo(near 12.472ms cap 256) paris(near 157.313ms cap 256)
            placed: paris(near 12.472ms cap 256) tokyo(near 158.102ms cap 256)
            placed: tokyo(near 60.000ms cap 256) paris(near 60.000ms cap 256)
        "#]],
    );
}

#[test]
fn horizons_follow_the_measured_floor_and_hold_at_borders() {
    check(
        "
        node a
        node b
        node c
        node d
        build
        probe a rtt=6 server=1
        probe b rtt=14
        probe c rtt=40
        probe d rtt=200
        sweep
        decide key=k
        # A slow probe does not move the floor; a new minimum does.
        probe a rtt=80
        probe d rtt=7
        sweep
        show a
        show d
        # Server time beyond the round trip is not believed.
        probe b rtt=30 server=99
        show b
        ",
        expect![[r#"
            sweep: moved 2
            placed: a(key 15.000ms cap 2) b(primary 24.000ms cap 2) c(farther 50.000ms cap 2) d(farther 210.000ms cap 2)
            sweep: moved 1
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
            d: healthy horizon 0 leases 0 load 0.000 floor 7.000ms service ? errors 0.0000% failures 0
            b: healthy horizon 0 leases 0 load 0.000 floor 14.000ms service ? errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn residency_is_a_filter_known_or_not() {
    check(
        "
        class eu
        node a in=eu
        node b in=us
        node c in=ap
        build
        decide key=k allowed=eu
        decide key=k allowed=us,ap
        decide key=k allowed=mars
        probe-fails b x3
        probe-fails a x3
        drain c
        sweep
        decide key=k allowed=eu
        decide key=k allowed=us,ap
        ",
        expect![[r#"
            placed: a(primary 60.000ms cap 2) not_allowed=2
            placed: b(primary 60.000ms cap 2) c(key 60.000ms cap 2) not_allowed=1
            nobody: not_allowed=3
            sweep:
            nobody: not_allowed=2 dead=1
            nobody: not_allowed=1 dead=1 draining=1
        "#]],
    );
}

#[test]
fn load_is_others_aged_plus_own_now() {
    check(
        "
        node a
        build
        probe a rtt=5 total=10 share=4
        hold a x3
        show a
        at 1000
        show a
        at 2000
        show a
        release a x3
        show a
        ",
        expect![[r#"
            a: healthy horizon 0 leases 3 load 9.000 floor 5.000ms service ? errors 0.0000% failures 0
            a: healthy horizon 0 leases 3 load 6.000 floor 5.000ms service ? errors 0.0000% failures 0
            a: healthy horizon 0 leases 3 load 3.000 floor 5.000ms service ? errors 0.0000% failures 0
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn affinity_holds_until_the_primary_costs_too_much() {
    check(
        "
        node a
        node b
        node c
        build ring=16
        probe a rtt=5
        probe b rtt=5
        probe c rtt=5
        sweep
        decide key=session-1
        decide key=session-1
        decide key=session-5
        # 3 ms dearer than the best is within a tenth plus 2 ms; 4 ms is not.
        answer b latency=20 server=10
        answer c latency=20 server=10
        answer a latency=20 server=13
        decide key=session-1
        answer a latency=20 server=20
        answer a latency=20 server=20
        decide key=session-1
        decide key=session-5
        ",
        expect![[r#"
            sweep:
            placed: a(primary 15.000ms cap 2) c(key 15.000ms cap 2) b(key 15.000ms cap 2)
            placed: a(primary 15.000ms cap 2) c(key 15.000ms cap 2) b(key 15.000ms cap 2)
            placed: b(primary 15.000ms cap 2) c(key 15.000ms cap 2) a(key 15.000ms cap 2)
            placed: a(primary 18.000ms cap 2) c(key 15.000ms cap 2) b(key 15.000ms cap 2)
            placed: b(key 15.000ms cap 2) c(key 15.000ms cap 2) a(primary 19.640ms cap 2)
            placed: b(primary 15.000ms cap 2) c(key 15.000ms cap 2) a(key 19.640ms cap 2)
        "#]],
    );
}

#[test]
fn over_the_bound_is_rejected_and_a_full_fleet_sheds() {
    check(
        "
        node a workers=1
        node b workers=1
        build ring=16
        hold a x5
        decide key=k
        hold a
        decide key=k
        hold a x58
        hold b x63
        decide key=k
        hold b
        decide key=k
        ",
        expect![[r#"
            placed: b(key 60.000ms cap 6) a(primary 110.000ms cap 6)
            placed: b(key 60.000ms cap 6) a(primary 120.000ms cap 64) +a(over_cap)
            placed: b(key 690.000ms cap 64) -a(full)
            shed: -a(full) -b(full)
        "#]],
    );
}

#[test]
fn all_over_their_bounds_queue_where_waiting_is_shortest() {
    check(
        "
        node a workers=2
        node b workers=4
        build
        # Restarted nodes may only have a tenth of their share.
        probe a rtt=5 total=0 boot=1
        probe a rtt=5 total=9 boot=2
        probe b rtt=5 total=0 boot=1
        probe b rtt=5 total=9 boot=2
        decide
        at 10000
        probe a rtt=5 total=9 boot=2
        probe b rtt=5 total=9 boot=2
        sweep
        decide
        ",
        expect![[r#"
            queued: b(random 255.000ms cap 247) a(random 505.000ms cap 119)
            sweep: recovered 2
            placed: b(random 30.000ms cap 7) a(random 55.000ms cap 7)
        "#]],
    );
}

#[test]
fn deadline_admits_then_price_and_carbon_decide() {
    check(
        "
        node near price=9
        node cheap price=1 carbon=400
        node green price=1 carbon=20
        node far price=0
        build
        probe near rtt=5
        probe cheap rtt=11
        probe green rtt=12
        probe far rtt=150
        sweep
        decide key=k deadline=100
        decide key=k deadline=100 client_rtt=156
        # Without a deadline only the nodes near the best one are compared so.
        decide key=k
        probe green rtt=6
        sweep
        decide key=k
        decide key=k deadline=10
        decide key=k deadline=2
        ",
        expect![[r#"
            sweep: moved 1
            placed: green(key 22.000ms cap 2) cheap(primary 21.000ms cap 2) near(key 15.000ms cap 2) -far(too_far)
            placed: near(key 15.000ms cap 2) cheap(primary 21.000ms cap 2) green(key 22.000ms cap 2) -far(too_far)
            placed: near(key 15.000ms cap 2) cheap(primary 21.000ms cap 2) green(key 22.000ms cap 2) far(farther 160.000ms cap 2)
            sweep:
            placed: green(key 16.000ms cap 2) near(key 15.000ms cap 2) cheap(primary 21.000ms cap 2) far(farther 160.000ms cap 2)
            late: near(key 15.000ms cap 2) green(key 16.000ms cap 2) -cheap(too_far) -far(too_far)
            shed: -cheap(too_far) -near(too_far) -green(too_far) -far(too_far)
        "#]],
    );
}

#[test]
fn costs_count_loading_offloading_errors_and_payload() {
    check(
        "
        node a loadable=400 offload=80 service=12 workers=1
        build
        probe a rtt=5 total=2
        fail a
        decide hard=25 bytes=20000 cost
        ",
        expect![[r#"
            placed: a(random 478.500ms cap 3)
              network 10.000ms queue 24.000ms service 12.000ms load 400.000ms offload 20.000ms errors 12.500ms
        "#]],
    );
}

#[test]
fn farther_horizons_take_over_when_the_near_ones_are_full() {
    check(
        "
        node edge1 workers=1
        node edge2 workers=1
        node cloud workers=64
        build ring=16
        probe edge1 rtt=4
        probe edge2 rtt=4
        probe cloud rtt=60
        sweep
        decide key=k
        hold edge1 x6
        hold edge2 x6
        decide key=k
        hold edge1 x64
        hold edge2 x64
        decide key=k
        ",
        expect![[r#"
            sweep: moved 1
            placed: edge2(primary 14.000ms cap 2) edge1(key 14.000ms cap 2) cloud(farther 70.000ms cap 2)
            placed: edge2(primary 74.000ms cap 11) cloud(farther 70.000ms cap 2) edge1(key 74.000ms cap 11)
            placed: cloud(farther 70.000ms cap 2) -edge2(full) -edge1(full)
        "#]],
    );
}

#[test]
fn ring_bounded_moves_on_along_the_ring() {
    check(
        "
        policy ring_bounded
        node a
        node b
        node c
        build ring=32
        decide key=k book
        decide key=k book
        decide key=k book
        decide key=k book
        decide key=k book
        decide key=k book
        ",
        expect![[r#"
            placed: a(primary 60.000ms cap 1) c(key 60.000ms cap 1) b(key 60.000ms cap 1)
            placed: c(key 60.000ms cap 1) b(key 60.000ms cap 1) a(primary 60.000ms cap 256) +a(over_cap)
            placed: a(primary 60.000ms cap 2) c(key 60.000ms cap 2) b(key 60.000ms cap 2)
            placed: c(key 60.000ms cap 2) b(key 60.000ms cap 2) a(primary 60.000ms cap 256) +a(over_cap)
            placed: a(primary 60.000ms cap 3) c(key 60.000ms cap 3) b(key 60.000ms cap 3)
            placed: c(key 60.000ms cap 3) b(key 60.000ms cap 3) a(primary 60.000ms cap 256) +a(over_cap)
        "#]],
    );
}
