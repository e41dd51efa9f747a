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
}

#[test]
fn variants_and_keys_are_named_too() {
    check(
        &format!("name = \"a\"\n{MODEL}variant = \"int8\"\n"),
        expect![[
            r#"node.toml:4: model[0].variant = "int8": there is none: the stages come as plain"#
        ]],
    );
    check(
        &format!("name = \"a\"\nrole = \"cloud\"\n{MODEL}variant = \"plain\"\n"),
        expect![[
            r#"node.toml:5: model[0].variant = "plain": a cloud runs all stages as they were cut; remove this"#
        ]],
    );
    check(
        "name = \"a\"\n[[model]]\nonnx = \"Cargo.toml\"\nvariant = \"int8\"\n",
        expect![[
            r#"node.toml:4: model[0].variant = "int8": an ONNX file has no variants; remove this, or make a bundle of it"#
        ]],
    );
    check(
        &format!("name = \"a\"\ntrusted_keys = [\"none.pem\"]\n{MODEL}"),
        expect![[
            r#"node.toml:2: trusted_keys[0] = "none.pem": cannot read ./none.pem: No such file or directory (os error 2)"#
        ]],
    );
    let keys = "trusted_keys = [\"../model-split/tests/golden/openssl.pub.pem\"]";
    check(
        &format!("name = \"a\"\n{keys}\n[[model]]\nonnx = \"Cargo.toml\"\n"),
        expect![[
            r#"node.toml:4: model[0].onnx = "Cargo.toml": trusted_keys is set and an ONNX file cannot be signed; make a bundle of it"#
        ]],
    );
    check(
        &format!("name = \"a\"\n{keys}\n{MODEL}variant = \"plain\"\n"),
        expect![[r#"[Embedded { run: Run { local_stages: None, variant: Some("plain") } }]"#]],
    );
    check(
        &format!("name = \"a\"\n{MODEL}"),
        expect!["[Embedded { run: Run { local_stages: None, variant: None } }]"],
    );
}
