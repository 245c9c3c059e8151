//! Checks that the kernels in the program match their source.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// Needs NVRTC (`scripts/kernels` fetches it, 50 MB); prints a note without it.
#[test]
fn kernels_are_compiled_from_their_source() {
    let root = root();
    let is_there = std::env::var_os("LINERATE_NVRTC").is_some() || root.join("target/nvrtc/bin/pip").exists();
    if !is_there {
        eprintln!("NOT TESTED: kernels.ptx against kernels.cu, NVRTC is missing (scripts/kernels check fetches it)");
        return;
    }
    let output = Command::new(root.join("scripts/kernels")).arg("check").output().expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Drivers accept only PTX versions that they know, and run code for older GPUs.
#[test]
fn kernels_support_the_documented_gpus() {
    let text = std::fs::read_to_string(root().join("crates/device/src/kernels.ptx")).unwrap();
    let of = |word: &str| text.lines().find_map(|line| line.strip_prefix(word).map(str::trim).map(str::to_owned));
    assert_eq!((of(".version"), of(".target")), (Some("8.1".to_owned()), Some("sm_70".to_owned())));
    for kernel in ["linerate_place", "linerate_examine", "linerate_report"] {
        assert!(text.contains(&format!(".entry {kernel}(")), "{kernel}");
    }
}
