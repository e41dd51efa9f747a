//! Bad router files, each with its message.

use expect_test::{Expect, expect};

use super::*;

fn check(text: &str, expected: Expect) {
    let outcome = midspan_net::config::parse::<RawConfig>("router.toml", text, Path::new("."));
    expected
        .assert_eq(&outcome.map_or_else(|error| error.to_string(), |ok| format!("{:?}", ok.nodes)));
}

const NODE: &str = "[[node]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\n";

#[test]
fn bad_files_name_line_key_and_value() {
    check("", expect!["router.toml:1: node: at least one [[node]] is needed"]);
    check(
        &format!("{NODE}{NODE}"),
        expect![[r#"router.toml:5: node[1].name = "a": another node has this name"#]],
    );
    check(
        "[[node]]\nname = \"a\"\naddress = \"localhost\"\n",
        expect![[r#"router.toml:3: node[0].address = "localhost": not host:port"#]],
    );
    check(
        &format!("[policy]\nname = \"magic\"\n{NODE}"),
        expect![[
            r#"router.toml:2: policy.name = "magic": no such policy; choose one of capped_affinity, nearest, ring_bounded"#
        ]],
    );
    check(
        &format!("[limits]\ndeadline = \"2m\"\n{NODE}"),
        expect![[
            r#"router.toml:2: limits.deadline = "2m": must be above zero and at most max_deadline"#
        ]],
    );
    check(
        &format!("place = [91.0, 0.0]\n{NODE}"),
        expect![
            "router.toml:1: place: no such place: latitude 91 (-90..=90), longitude 0 (-180..=180)"
        ],
    );
    check(
        &format!("{NODE}weight = 0\n"),
        expect!["router.toml:4: node[0].weight = 0: weight must be within 1..=10000, got 0"],
    );
    check(
        &format!("name = \"a b\"\n{NODE}"),
        expect![[r#"router.toml:1: name = "a b": 1 to 64 letters, digits, '-', '_' or '.'"#]],
    );
}
