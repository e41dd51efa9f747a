//! Bad node files, each with its message.

use expect_test::{Expect, expect};

use super::*;

fn check(text: &str, expected: Expect) {
    let outcome = midspan_net::config::parse::<RawConfig>("node.toml", text, Path::new("."));
    expected.assert_eq(
        &outcome.map_or_else(|error| error.to_string(), |ok| format!("{:?}", ok.models)),
    );
}

const MODEL: &str = "[[model]]\nbundle = \"embedded\"\n";

#[test]
fn bad_files_name_line_key_and_value() {
    check("", expect!["node.toml:1: missing field `name`"]);
    check("name = \"a\"\n", expect!["node.toml:1: model: at least one [[model]] is needed"]);
    check(
        "name = \"a\"\n[[model]]\nbundle = \"nowhere\"\n",
        expect![[r#"node.toml:3: model[0].bundle = "nowhere": ./nowhere is no folder"#]],
    );
    check(
        "name = \"a\"\n[[model]]\nonnx = \"no.onnx\"\n",
        expect![[r#"node.toml:3: model[0].onnx = "no.onnx": ./no.onnx is no file"#]],
    );
    check(
        &format!("name = \"a\"\nrole = \"core\"\n{MODEL}"),
        expect![[
            r#"node.toml:2: role = "core": unknown variant `core`, expected `edge` or `cloud`"#
        ]],
    );
    check(
        &format!("name = \"a\"\nrole = \"cloud\"\n{MODEL}[[cloud]]\naddress = \"x:1\"\n"),
        expect![[
            r#"node.toml:5: cloud: a cloud does not offload; remove it or set role = "edge""#
        ]],
    );
    check(
        &format!("name = \"a\"\n{MODEL}local_stages = 0\n"),
        expect!["node.toml:4: model[0].local_stages = 0: must be at least 1"],
    );
    check(
        &format!("name = \"a\"\n{MODEL}[offload]\ntimeout = \"0s\"\n"),
        expect![[r#"node.toml:5: offload.timeout = "0s": must be longer than zero"#]],
    );
    check(
        &format!("name = \"a\"\n{MODEL}version = \"2\"\n"),
        expect![[
            r#"node.toml:4: model[0].version = "2": a bundle has its own version; remove this"#
        ]],
    );
    check(
        "name = \"a\"\n[[model]]\nonnx = \"Cargo.toml\"\nversion = \"1/2\"\n",
        expect![[r#"node.toml:4: model[0].version = "1/2": must be one part of a path"#]],
    );
    check(&format!("name = \"a\"\n{MODEL}"), expect!["[Embedded { local_stages: None }]"]);
}
