//! What events and sweeps make of nodes: one scenario per feature.

use expect_test::expect;

use crate::dsl::check;

#[test]
fn floor_forgets_by_windows_and_never_decays_without_samples() {
    check(
        "
        node a
        build
        at 1000
        probe a rtt=5
        at 12000
        probe a rtt=20
        show a
        at 22000
        probe a rtt=25
        show a
        at 999000
        show a
        ",
        expect![[r#"
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
            a: healthy horizon 0 leases 0 load 0.000 floor 20.000ms service ? errors 0.0000% failures 0
            a: healthy horizon 0 leases 0 load 0.000 floor 20.000ms service ? errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn failing_node_is_ejected_tried_and_let_in_slowly() {
    check(
        "
        node a
        node b
        build ring=16
        fail a x5
        at 250
        sweep
        decide key=k
        show a
        at 5250
        sweep
        show a
        # One trial at a time; its failure doubles the time out.
        hold a
        policy nearest
        decide key=k
        release a
        fail a
        show a
        at 15250
        sweep
        answer a latency=9 server=3
        show a
        at 20250
        sweep
        decide key=k
        at 25250
        sweep
        show a
        ",
        expect![[r#"
            sweep: ejected 1
            placed: b(primary 60.000ms cap 2) ejected=1
            a: ejected horizon 0 leases 0 load 0.000 floor ? service ? errors 26.7185% failures 5
            sweep: half_opened 1
            a: half_open horizon 0 leases 0 load 0.000 floor ? service ? errors 0.0000% failures 0
            placed: b(near 60.000ms cap 256) -a(trial)
            a: ejected horizon 0 leases 0 load 0.000 floor ? service ? errors 6.2500% failures 1
            sweep: half_opened 1
            a: slow_start horizon 0 leases 0 load 0.000 floor ? service 3.000ms errors 0.0000% failures 0
            sweep:
            placed: a(near 53.000ms cap 256) b(near 53.000ms cap 256)
            sweep: recovered 1
            a: healthy horizon 0 leases 0 load 0.000 floor ? service 3.000ms errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn ejection_spares_half_of_the_fleet_and_a_lone_node() {
    check(
        "
        node a
        build
        fail a x9
        sweep
        node b
        node c
        node d
        build
        fail b x9
        fail c x9
        fail d x9
        sweep
        decide
        ",
        expect![[r#"
            sweep: spared 1
            sweep: ejected 2 spared 2
            placed: c(random 145.365ms cap 2) b(random 145.365ms cap 2) ejected=2
        "#]],
    );
}

#[test]
fn answers_end_a_row_of_failures() {
    check(
        "
        node a
        node b
        build
        fail a x4
        answer a latency=5
        fail a x4
        sweep
        show a
        ",
        expect![[r#"
            sweep:
            a: healthy horizon 0 leases 0 load 0.000 floor ? service 5.000ms errors 38.0041% failures 4
        "#]],
    );
}

#[test]
fn probes_make_suspect_then_dead_then_slow_start() {
    check(
        "
        node a
        node b
        build
        probe-fails a
        show a
        probe a rtt=5
        show a
        probe-fails a x3
        decide
        sweep
        decide
        probe-fails b x3
        sweep
        decide
        probe a rtt=5
        show a
        sweep
        decide
        ",
        expect![[r#"
            a: suspect horizon 0 leases 0 load 0.000 floor ? service ? errors 0.0000% failures 0
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
            placed: b(random 60.000ms cap 2)
            sweep:
            placed: b(random 60.000ms cap 2) dead=1
            sweep:
            nobody: dead=2
            a: slow_start horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
            sweep: moved 1
            placed: a(random 30.000ms cap 1) dead=1
        "#]],
    );
}

#[test]
fn draining_by_the_node_or_the_operator_ends_with_its_word_or_a_restart() {
    check(
        "
        node a
        node b drained
        build
        decide
        drain a
        decide
        sweep
        decide
        probe a rtt=5 total=0 draining boot=1
        show a
        probe a rtt=5 total=0 boot=2
        show a
        ",
        expect![[r#"
            placed: a(random 60.000ms cap 2) draining=1
            nobody: draining=1
            sweep:
            nobody: draining=2
            a: draining horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
            a: slow_start horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn restart_forgets_the_report_and_the_failures() {
    check(
        "
        node a
        node b
        build
        probe a rtt=5 total=50 boot=1
        fail a x4
        show a
        answer a latency=5 server=3 total=1 share=1 boot=2
        show a
        ",
        expect![[r#"
            a: healthy horizon 0 leases 0 load 50.000 floor 5.000ms service ? errors 22.7527% failures 4
            a: slow_start horizon 0 leases 0 load 0.000 floor 5.000ms service 3.000ms errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn ejected_nodes_are_the_last_resort() {
    check(
        "
        node a
        node b
        build
        fail a x5
        sweep
        probe-fails b x3
        sweep
        decide
        ",
        expect![[r#"
            sweep: ejected 1
            sweep:
            last_resort: a(near 111.764ms cap 256) dead=1 ejected=1
        "#]],
    );
}

#[test]
fn surviving_nodes_keep_their_cells_and_removed_ones_lose_them() {
    check(
        "
        node a
        node b
        build
        probe a rtt=7 total=5
        probe b rtt=9 total=5
        remove a
        build
        show b
        node c
        build
        show c
        show b
        ",
        expect![[r#"
            b: healthy horizon 0 leases 0 load 5.000 floor 9.000ms service ? errors 0.0000% failures 0
            c: healthy horizon 2 leases 0 load 0.000 floor ? service ? errors 0.0000% failures 0
            b: healthy horizon 0 leases 0 load 5.000 floor 9.000ms service ? errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn only_probes_failed_in_a_row_make_dead() {
    check(
        "
        node a
        build
        probe-fails a x2
        probe a rtt=5
        probe-fails a x2
        show a
        probe-fails a
        show a
        ",
        expect![[r#"
            a: suspect horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
            a: dead horizon 0 leases 0 load 0.000 floor 5.000ms service ? errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn ejections_grow_with_relapses_and_shrink_with_recovery() {
    check(
        "
        node a
        node b
        build
        fail a x5
        sweep
        at 5000
        sweep
        answer a latency=5
        fail a x5
        # A relapse in the slow start: out for ten seconds instead of five.
        sweep
        at 14999
        sweep
        at 15000
        sweep
        answer a latency=5
        at 25000
        sweep
        # Recovered once: the next time is the second again, not the third.
        fail a x5
        sweep
        at 34999
        sweep
        at 35000
        sweep
        ",
        expect![[r#"
            sweep: ejected 1
            sweep: half_opened 1
            sweep: ejected 1
            sweep:
            sweep: half_opened 1
            sweep: recovered 1
            sweep: ejected 1
            sweep:
            sweep: half_opened 1
        "#]],
    );
}

#[test]
fn without_the_nodes_word_latency_only_lowers_the_service_time() {
    check(
        "
        node a
        build
        probe a rtt=5
        answer a latency=45
        show a
        answer a latency=900
        show a
        answer a latency=21
        show a
        # A server time beyond the latency is no word.
        answer a latency=45 server=99
        show a
        answer a latency=90 server=80
        show a
        ",
        expect![[r#"
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service 40.000ms errors 0.0000% failures 0
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service 40.000ms errors 0.0000% failures 0
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service 37.000ms errors 0.0000% failures 0
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service 37.000ms errors 0.0000% failures 0
            a: healthy horizon 0 leases 0 load 0.000 floor 5.000ms service 42.375ms errors 0.0000% failures 0
        "#]],
    );
}

#[test]
fn failures_fade_while_nobody_asks() {
    check(
        "
        node a
        node b
        build
        fail a x3
        show a
        sweep
        sweep
        show a
        ",
        expect![[r#"
            a: healthy horizon 0 leases 0 load 0.000 floor ? service ? errors 17.6028% failures 3
            sweep:
            sweep:
            a: healthy horizon 0 leases 0 load 0.000 floor ? service ? errors 16.5178% failures 3
        "#]],
    );
}
