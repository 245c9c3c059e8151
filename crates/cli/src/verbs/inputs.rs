//! What a run reads, and that it does not write over it.

use crate::exit::usage;
use linerate_backends::REGISTRY;
use linerate_port::Spec;
use std::fs::{Metadata, metadata};
use std::os::unix::fs::MetadataExt;

/// Whether frames come from, or go to, interfaces of this machine.
pub(super) fn are_live<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> bool {
    specs.into_iter().any(|spec| REGISTRY.interface(spec).is_some())
}

/// Whether it is a capture file, behind whatever wrappers. To be written it is opened by whoever the program becomes.
pub(super) fn is_file(spec: &Spec) -> bool {
    REGISTRY.file(spec).is_some()
}

/// Refuses to write a file that is read, whatever stands around it (`faulty:`), leads to it, or is only its other name.
pub(super) fn check_output<'a>(specs: impl IntoIterator<Item = &'a Spec>, written: &str) -> anyhow::Result<()> {
    let mut files = specs.into_iter().filter_map(|spec| REGISTRY.file(spec));
    match files.find(|file| is_same_file(file, written)) {
        Some(file) => Err(usage(format!("{file} is both read and written ({written}): write to another file"))),
        None => Ok(()),
    }
}

/// Whether what is read is the regular file that is written, or the one beside it that it is written to until it is complete.
/// `-` is standard input, and output.
fn is_same_file(read: &str, written: &str) -> bool {
    let look = |path: &str, stream: &str| metadata(if path == "-" { stream } else { path }).ok();
    let identity = |data: Metadata| data.is_file().then(|| (data.dev(), data.ino()));
    let Some(read) = look(read, "/dev/stdin").and_then(identity) else { return false };
    let names = [written.to_owned(), format!("{written}.part")];
    names.iter().any(|name| look(name, "/dev/stdout").and_then(identity) == Some(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_by_any_name_and_in_any_wrapper() {
        let folder = std::env::temp_dir().join(format!("linerate-inputs-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let name = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let [file, link, hard, other, part] = ["a.pcap", "link", "hard", "b.pcap", "c.part"].map(name);
        for file in [&file, &other, &part] {
            std::fs::write(file, "frames").unwrap();
        }
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::fs::hard_link(&file, &hard).unwrap();
        let is_refused = |port: &str, written: &str| check_output(&[Spec::parse(port).unwrap()], written).is_err();
        for port in
            [format!("pcap:{file}"), format!("faulty:pcap:{file}"), format!("faulty:faulty:pcap:{link}?drop=1%")]
        {
            for written in [&file, &link, &hard, &name("./a.pcap")] {
                assert!(is_refused(&port, written), "{port} {written}");
            }
            for written in [&other, &name("new.pcap"), &format!("{}/", folder.display()), "/dev/null", "null"] {
                assert!(!is_refused(&port, written), "{port} {written}");
            }
        }
        assert!(is_refused(&format!("pcap:{part}"), &name("c")));
        assert!(!is_refused(&format!("packet:{file}"), &file));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
