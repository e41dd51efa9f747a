//! The one binary: subcommands parse, call a library, print. No logic of the product lives here.

/// `println!` that ends quietly when nobody reads any more (`midspan status | head -1`).
macro_rules! out {
    ($($arg:tt)*) => {
        $crate::print_line(format_args!($($arg)*))
    };
}

mod config;
#[cfg(feature = "tools")]
mod fetch;
#[cfg(feature = "tools")]
mod infer;
#[cfg(feature = "tools")]
mod load;
mod node;
#[cfg(any(feature = "split", feature = "tools"))]
mod open;
mod progress;
#[cfg(feature = "router")]
mod router;
mod runtime;
#[cfg(feature = "split")]
mod split;
#[cfg(feature = "tools")]
mod status;
mod stop;
#[cfg(any(feature = "split", feature = "tools"))]
mod table;
#[cfg(feature = "tools")]
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use midspan_net::config::ConfigError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code for a configuration that cannot be used (EX_USAGE of sysexits.h).
const BAD_CONFIG: u8 = 64;

/// Midspan routes inference requests to edge nodes that answer what they can and send only hard
/// cases, compressed, to a cloud.
#[derive(Parser)]
#[command(name = "midspan", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(feature = "tools")]
    Up(up::Args),
    #[cfg(feature = "router")]
    Router(router::Args),
    Node(node::Args),
    #[cfg(feature = "tools")]
    Infer(infer::Args),
    #[cfg(feature = "tools")]
    Status(status::Args),
    #[cfg(feature = "tools")]
    Explain(status::ExplainArgs),
    #[cfg(feature = "tools")]
    #[command(subcommand)]
    Load(load::Command),
    #[cfg(feature = "split")]
    #[command(subcommand)]
    Split(split::Command),
    #[command(subcommand)]
    Config(config::Command),
    #[command(subcommand)]
    Runtime(runtime::Command),
}

fn print_line(line: std::fmt::Arguments<'_>) {
    use std::io::{ErrorKind, Write};
    match writeln!(std::io::stdout().lock(), "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            say(format_args!("standard output cannot be written: {error}"));
            std::process::exit(1);
        }
    }
}

/// One line on standard error; a reader that is gone must not end the program.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _nobody_reads = writeln!(std::io::stderr().lock(), "midspan: {line}");
}

/// The error and its causes; a cause that the text before it already tells is not told twice.
fn describe(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut text, cause| {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
        text
    })
}

fn main() -> ExitCode {
    // Before any thread: it writes the environment.
    midspan_runtime::library::forbid_telemetry();
    let outcome = match Cli::parse().command {
        #[cfg(feature = "tools")]
        Command::Up(args) => up::run(args),
        #[cfg(feature = "router")]
        Command::Router(args) => router::run(&args),
        Command::Node(args) => node::run(&args),
        #[cfg(feature = "tools")]
        Command::Infer(args) => infer::run(&args),
        #[cfg(feature = "tools")]
        Command::Status(args) => status::run(&args),
        #[cfg(feature = "tools")]
        Command::Explain(args) => status::explain(&args),
        #[cfg(feature = "tools")]
        Command::Load(command) => load::run(command),
        #[cfg(feature = "split")]
        Command::Split(command) => split::run(&command),
        Command::Config(command) => config::run(command),
        Command::Runtime(command) => runtime::run(&command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{}", describe(&error)));
            let bad_config = error.downcast_ref::<ConfigError>().is_some();
            if bad_config { ExitCode::from(BAD_CONFIG) } else { ExitCode::FAILURE }
        }
    }
}
