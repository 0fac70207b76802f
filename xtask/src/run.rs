//! Running other programs from the root of the repository.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("this crate is in a folder of the repository")
}

/// The cargo that runs us.
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs cargo with these arguments and variables, its output passed on.
pub(crate) fn cargo_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let mut command = Command::new(cargo());
    command
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root());
    let status = command.status().context("cargo can't be started")?;
    if !status.success() {
        bail!("`{}` failed", shown(arguments, variables));
    }
    Ok(())
}

/// Runs cargo with these arguments and returns what it prints.
pub(crate) fn cargo_output(arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(cargo());
    command.args(arguments).current_dir(root()).stderr(Stdio::inherit());
    let output = command.output().context("cargo can't be started")?;
    if !output.status.success() {
        bail!("`{}` failed", shown(arguments, &[]));
    }
    Ok(output.stdout)
}

/// Whether this part of cargo is installed.
pub(crate) fn has_cargo_part(part: &str) -> bool {
    let mut command = Command::new(cargo());
    command
        .args([part, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether a program can be started.
pub(crate) fn has_program(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs a component of the toolchain.
pub(crate) fn install_component(component: &str) -> Result<()> {
    let mut command = Command::new("rustup");
    command.args(["component", "add", component]).current_dir(root());
    let status = command
        .status()
        .with_context(|| format!("`{component}` is missing, and rustup can't be started to install it"))?;
    if !status.success() {
        bail!("`rustup component add {component}` failed");
    }
    Ok(())
}

/// A command as one would type it.
pub(crate) fn shown(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let variables = variables.iter().map(|(name, value)| format!("{name}=\"{value}\" "));
    format!("{}cargo {}", variables.collect::<String>(), arguments.join(" "))
}
