//! `linerate man`, `linerate completions`: man pages and shell completions, generated from the definitions of the options.

use super::Program;
use crate::exit::Exit;
use crate::view::terminal::show_as_is;
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Options of `linerate man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Directory for the pages: linerate.1, linerate-capture.1, ...
    folder: PathBuf,
}

/// Options of `linerate completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// Shell to generate completions for
    shell: Shell,
}

/// Writes a page for the program and for each verb.
pub(super) fn man(args: &ManArgs) -> anyhow::Result<Exit> {
    let mut program = Program::command().disable_help_subcommand(true);
    program.build();
    write_pages(&program, &args.folder)?;
    Ok(Exit::Done)
}

/// Prints the completion script.
pub(super) fn completions(args: &CompletionArgs) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Program::command(), "linerate", &mut script);
    show_as_is(&script);
    Exit::Done
}

fn write_pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, folder)?;
    }
    // An empty date would be omitted, and the next field taken as the date.
    let page = Man::new(command.clone()).date(" ").source(concat!("linerate ", env!("CARGO_PKG_VERSION")));
    let path = folder.join(page.get_filename());
    let text = render(&page, command).context("cannot render a man page")?;
    // Replace the file or link itself, not the target of a link.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| path.display().to_string());
        }
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    file.and_then(|mut file| file.write_all(&text)).with_context(|| path.display().to_string())
}

/// Renders like the library, but keeps line breaks in the text after the options, so that commands can be copied.
fn render(page: &Man, command: &Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    // No hyphenation: options could not be copied.
    Roff::new().control("nh", []).control("ad", ["l"]).to_writer(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    text.extend(options(page, command)?.into_bytes());
    if command.get_subcommands().next().is_some() {
        page.render_subcommands_section(&mut text)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (heading, lines) =
        after.strip_prefix("Examples:\n").map_or(("NOTES", after.as_str()), |rest| ("EXAMPLES", rest));
    if !lines.is_empty() {
        let mut notes = Roff::new();
        notes.control("SH", [heading]);
        for line in lines.lines() {
            notes.text([roman(line)]).control("br", []);
        }
        notes.to_writer(&mut text)?;
    }
    Ok(text)
}

/// Renders the options under their headings. The library capitalizes headings, which would turn `-w` into another option.
fn options(page: &Man, command: &Command) -> std::io::Result<String> {
    let mut options = Vec::new();
    page.render_options_section(&mut options)?;
    let mut options = String::from_utf8_lossy(&options).into_owned();
    for heading in command.get_arguments().filter_map(|option| option.get_help_heading()) {
        let section = |heading: &str| Roff::new().control("SH", [heading]).to_roff();
        options = options.replace(&section(&heading.to_uppercase()), &section(heading));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_keep_their_case() {
        let mut program = Program::command();
        program.build();
        for verb in program.get_subcommands() {
            let page = options(&Man::new(verb.clone()), verb).unwrap();
            let headings: Vec<_> = verb.get_arguments().filter_map(|option| option.get_help_heading()).collect();
            let shown: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
            for heading in shown.iter().map(|shown| shown.trim_matches('"')).filter(|shown| *shown != "OPTIONS") {
                let is_ours = headings.iter().any(|ours| heading.replace('\\', "").contains(&ours.replace('\\', "")));
                assert!(is_ours, "{}: {heading}", verb.get_name());
            }
        }
    }
}
