//! Every error names file, line, key and value.

use expect_test::{Expect, expect};
use schemars::JsonSchema;
use serde::Deserialize;

use super::*;
use crate::units::{Size, Span};

/// An example.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "seen through Debug")]
struct Raw {
    /// How long to wait.
    #[serde(default = "wait")]
    #[schemars(default = "wait")]
    wait: Span,
    /// Largest body.
    limit: Option<Size>,
    /// The peers.
    #[serde(default)]
    node: Vec<RawNode>,
}

/// One peer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawNode {
    /// Where it is.
    url: String,
}

fn wait() -> Span {
    Span::millis(250)
}

impl Validate for Raw {
    type Valid = Self;
    fn validate(self, _: &Path) -> Result<Self, Problem> {
        for (index, node) in self.node.iter().enumerate() {
            if !node.url.starts_with("http://") {
                return Err(Problem::new(format!("node[{index}].url"), "not an http URL"));
            }
        }
        if self.node.is_empty() {
            return Err(Problem::new("node", "at least one is needed"));
        }
        Ok(self)
    }
}

fn check(text: &str, expected: Expect) {
    let outcome = parse::<Raw>("x.toml", text, Path::new("."));
    expected.assert_eq(&outcome.map_or_else(|error| error.to_string(), |raw| format!("{raw:?}")));
}

#[test]
fn good_and_bad_files() {
    check(
        "limit = \"1MiB\"\n[[node]]\nurl = \"http://a\"\n",
        expect![[
            r#"Raw { wait: Span(250ms), limit: Some(Size(1048576)), node: [RawNode { url: "http://a" }] }"#
        ]],
    );
    check(
        "\nwait = \"soon\"\n",
        expect![[
            r#"x.toml:2: wait = "soon": not a duration such as "250ms" or "2s": expected number at 0"#
        ]],
    );
    check(
        "[[node]]\nurl = \"http://a\"\n[[node]]\nurl = \"ftp://b\"\n",
        expect![[r#"x.toml:4: node[1].url = "ftp://b": not an http URL"#]],
    );
    check("wait = \"1s\"\n", expect!["x.toml:1: node: at least one is needed"]);
    check(
        "[[node]]\nurl = \"http://a\"\ncolour = 1\n",
        expect!["x.toml:3: node[0].colour: unknown field `colour`, expected `url`"],
    );
    check(
        "[[node]]\nurl = 5\n",
        expect!["x.toml:2: node[0].url = 5: invalid type: integer `5`, expected a string"],
    );
    check("a = [", expect!["x.toml:1: unclosed array, expected `]`"]);
}

#[test]
fn a_missing_file_is_named() {
    let error = load::<Raw>(Path::new("/nonexistent/x.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/x.toml: "), "{error}");
}

#[test]
fn the_reference_is_rendered_from_the_schema() {
    expect![[r#"
        ## Example

        | key | type | default | meaning |
        | --- | --- | --- | --- |
        | `limit` | size | none | Largest body. |
        | `wait` | duration | `"250ms"` | How long to wait. |

        ### `[[node]]`

        The peers.

        | key | type | default | meaning |
        | --- | --- | --- | --- |
        | `url` | string | required | Where it is. |
    "#]]
    .assert_eq(&markdown("Example", &schemars::schema_for!(Raw)));
}
