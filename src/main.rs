//! The binary: the command line, and the member or the work it asks for.

use std::process::ExitCode;

use revgate::{
    cli::{self, Asked},
    server,
};

fn main() -> ExitCode {
    match cli::read() {
        Ok(Asked::Serve(config)) => server::run(*config),
        Ok(Asked::Tool(tool)) => tool.run(),
        Err(code) => code,
    }
}
