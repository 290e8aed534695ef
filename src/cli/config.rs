//! `revgate config print`: what a member with the same options would be run with, and where each setting comes from.
//!
//! Exits with 2 if a member would refuse to start with it, so that it serves to check a file before it is put in place.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    EXIT_USAGE,
    flags::ServeFlags,
    output, settings,
    sources::{Origin, Setting, Sources},
};

/// Look at the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Show every setting in effect and where it comes from: flag, environment, file and line, or default. Takes the options
    /// of serve. Exits with 2 if they cannot be.
    Print(Box<PrintFlags>),
}

/// The options of `serve`, and the form.
#[derive(Args, Debug)]
pub(super) struct PrintFlags {
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) serve: ServeFlags,
}

/// Prints, and tells on standard error what cannot be.
pub(super) fn print(flags: &PrintFlags, sources: &Sources) -> ExitCode {
    let text = if flags.json { as_json(sources) } else { as_text(&sources.settings) };
    output::print(&text);
    if !flags.json {
        sources.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    }
    match settings::config(&flags.serve) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", sources.complaint(&error));
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn as_text(settings: &[Setting]) -> String {
    let row = |setting: &Setting| {
        let value = setting.value.clone().unwrap_or_else(|| "(not set)".to_owned());
        vec![setting.name.clone(), value, setting.origin.to_string()]
    };
    output::table(&["setting", "value", "from"], &settings.iter().map(row).collect::<Vec<_>>())
}

fn as_json(sources: &Sources) -> String {
    let setting = |setting: &Setting| {
        let origin = match &setting.origin {
            Origin::Flag => json!({"kind": "flag"}),
            Origin::Environment(variable) => json!({"kind": "environment", "variable": variable}),
            Origin::File { path, line } => json!({"kind": "file", "path": path.to_string_lossy(), "line": line}),
            Origin::Default => json!({"kind": "default"}),
        };
        json!({"name": setting.name, "value": setting.value, "origin": origin})
    };
    let settings: Vec<_> = sources.settings.iter().map(setting).collect();
    format!("{:#}\n", json!({"settings": settings, "warnings": sources.warnings}))
}
