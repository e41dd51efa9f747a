//! The one binary: subcommands parse, call a library, print.
fn main() {}
