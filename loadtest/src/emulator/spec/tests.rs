//! Presets, text forms and refusals of link descriptions.

use expect_test::expect;
use proptest::prelude::*;

use super::*;

#[test]
fn presets_are_the_documented_links() {
    let show = |name: &str| format!("{name}: {:?}\n", LinkSpec::preset(name));
    let all: String = LinkSpec::PRESETS.into_iter().map(show).collect();
    expect![[r#"
        wifi: Some(LinkSpec { up: Some(BitsPerSecond(18880000)), down: Some(BitsPerSecond(54970000)), rtt: 8ms, jitter: 0ns })
        4g: Some(LinkSpec { up: Some(BitsPerSecond(5850000)), down: Some(BitsPerSecond(13760000)), rtt: 50ms, jitter: 0ns })
        3g: Some(LinkSpec { up: Some(BitsPerSecond(1100000)), down: Some(BitsPerSecond(2030000)), rtt: 120ms, jitter: 0ns })
        none: Some(LinkSpec { up: None, down: None, rtt: 0ns, jitter: 0ns })
    "#]]
    .assert_eq(&all);
}

#[test]
fn text_forms() {
    let cases = [
        "4g,jitter=5ms",
        "up=5Mbps, down = none, rtt=40ms",
        "wifi,up=1.5mbps",
        "rtt=0s",
        "loss=1%",
        "4g,loss=0.1",
        "5g",
        "4g,fast",
        "up=5",
        "up=0bps",
        "up=-3Mbps",
        "down=NaNMbps",
        "down=inf",
        "rtt=2h",
        "jitter=5",
        "",
    ];
    let mut out = String::new();
    for case in cases {
        out += &match case.parse::<LinkSpec>() {
            Ok(spec) => format!("{case:?} -> {spec}\n"),
            Err(error) => format!("{case:?} -> {error}\n"),
        };
    }
    expect![[r#"
        "4g,jitter=5ms" -> 4g,jitter=5ms
        "up=5Mbps, down = none, rtt=40ms" -> up=5Mbps,down=none,rtt=40ms
        "wifi,up=1.5mbps" -> up=1.5Mbps,down=54.97Mbps,rtt=8ms
        "rtt=0s" -> none
        "loss=1%" -> link key 'loss': a TCP relay carries byte streams and cannot lose packets; use the TUN emulator for loss
        "4g,loss=0.1" -> link key 'loss': a TCP relay carries byte streams and cannot lose packets; use the TUN emulator for loss
        "5g" -> link '5g': not a preset (wifi, 4g, 3g, none) and not key=value
        "4g,fast" -> link key 'fast': expected up, down, rtt or jitter
        "up=5" -> bandwidth '5': expected none or 1bps to 1000Gbps, for example 5Mbps or 640kbps
        "up=0bps" -> bandwidth '0bps': expected none or 1bps to 1000Gbps, for example 5Mbps or 640kbps
        "up=-3Mbps" -> bandwidth '-3Mbps': expected none or 1bps to 1000Gbps, for example 5Mbps or 640kbps
        "down=NaNMbps" -> bandwidth 'NaNMbps': expected none or 1bps to 1000Gbps, for example 5Mbps or 640kbps
        "down=inf" -> bandwidth 'inf': expected none or 1bps to 1000Gbps, for example 5Mbps or 640kbps
        "rtt=2h" -> link key 'rtt': expected a time of at most 60s such as 40ms, got '2h'
        "jitter=5" -> link key 'jitter': expected a time of at most 60s such as 40ms, got '5'
        "" -> link '': not a preset (wifi, 4g, 3g, none) and not key=value
    "#]].assert_eq(&out);
}

#[test]
fn time_and_bytes_follow_the_rate() {
    let rate = BitsPerSecond::new(8_000_000).unwrap();
    assert_eq!(rate.time_for(1_000_000), Duration::from_secs(1));
    assert_eq!(rate.bytes_in(Duration::from_millis(50)), 50_000);
    assert_eq!(BitsPerSecond::new(3).unwrap().time_for(1), Duration::from_nanos(2_666_666_667));
    assert_eq!(BitsPerSecond::new(0), None);
    assert_eq!(BitsPerSecond::new(u64::MAX), None);
}

proptest! {
    #[test]
    fn every_spec_survives_its_text_and_json_form(
        up in proptest::option::of(1_u64..=1_000_000_000_000),
        down in proptest::option::of(1_u64..=1_000_000_000_000),
        rtt in 0_u64..60_000_000_000,
        jitter in 0_u64..60_000_000_000,
    ) {
        let spec = LinkSpec {
            up: up.and_then(BitsPerSecond::new),
            down: down.and_then(BitsPerSecond::new),
            rtt: Duration::from_nanos(rtt),
            jitter: Duration::from_nanos(jitter),
        };
        prop_assert_eq!(spec.to_string().parse::<LinkSpec>(), Ok(spec));
        let json = serde_json::to_string(&spec).unwrap();
        prop_assert_eq!(serde_json::from_str::<LinkSpec>(&json).unwrap(), spec);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,40}") {
        let _ = text.parse::<LinkSpec>();
        let _ = text.parse::<BitsPerSecond>();
    }
}
