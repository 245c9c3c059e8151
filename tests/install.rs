//! Files installed by `make install` and `make deb`, and their function.

use linerate_tests::support::program::{program, run, start};
use linerate_tests::support::{Scratch, files, has_tools, tool, wait_until};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Runs make with the program under test instead of building it.
fn make(target: &str, settings: &[&str]) -> String {
    let program = format!("LINERATE={}", program().display());
    let root = root().to_str().unwrap();
    tool("make", &[&["--no-print-directory", "-C", root, target, &program], settings].concat())
}

/// Installation below /opt/linerate in a scratch folder.
fn installed() -> Option<&'static Path> {
    static TREE: OnceLock<Option<(Scratch, PathBuf)>> = OnceLock::new();
    let install = || {
        has_tools(&["make", "cc"]).then(|| {
            let scratch = Scratch::new();
            let tree = scratch.file("tree");
            make("install", &[&format!("DESTDIR={tree}"), "PREFIX=/opt/linerate", "PYTHONDIR=/opt/linerate/python"]);
            (scratch, Path::new(&tree).join("opt/linerate"))
        })
    };
    TREE.get_or_init(install).as_ref().map(|(_, tree)| tree.as_path())
}

/// Verbs listed in `--help`.
fn verbs() -> Vec<String> {
    let help = run(&["--help"]).good().output;
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    let (verbs, _) = rest.split_once("\n\n").unwrap();
    let lines = verbs.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let verbs: Vec<String> = lines.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect();
    assert!(verbs.len() > 8 && verbs.contains(&"capture".to_owned()), "{help}");
    verbs.into_iter().filter(|verb| verb != "help").collect()
}

#[test]
fn install_stays_below_the_prefix_and_uninstall_removes_it() {
    if !has_tools(&["make", "cc"]) {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    let settings = [&format!("DESTDIR={tree}"), "PREFIX=/usr/local"];
    assert!(make("install", &settings).contains("make uninstall removes it"));
    let found = files(Path::new(&tree));
    let names: Vec<&str> = found.iter().filter_map(|file| file.to_str()?.strip_prefix(&tree)).collect();
    for name in [
        "bin/linerate",
        "include/linerate_frames.h",
        "include/linerate_ring.h",
        "lib/liblinerate_ring.a",
        "lib/liblinerate_ring.so",
        "lib/liblinerate_ring.so.1",
        "lib/pkgconfig/linerate-ring.pc",
        "lib/systemd/system/linerate-collect.service",
        "lib/systemd/system/linerate-flows@.service",
        "lib/systemd/system/linerate-record@.service",
        "lib/systemd/system/linerate-ship@.service",
        "share/bash-completion/completions/linerate",
        "share/doc/linerate/LICENSE-APACHE",
        "share/doc/linerate/LICENSE-MIT",
        "share/doc/linerate/README.md",
        "share/doc/linerate/docs/guide/install.md",
        "share/fish/vendor_completions.d/linerate.fish",
        "share/man/man1/linerate.1",
        "share/zsh/site-functions/_linerate",
    ] {
        assert!(names.contains(&format!("/usr/local/{name}").as_str()), "{name} is not in {names:?}");
    }
    assert!(names.iter().all(|name| name.starts_with("/usr/local/")), "{names:?}");
    make("uninstall", &settings);
    assert_eq!(files(Path::new(&tree)), Vec::<PathBuf>::new());
    let share = Path::new(&tree).join("usr/local/share");
    assert!(share.join("man/man1").exists() && !share.join("doc/linerate").exists());
}

/// If the libdaq module was built it is installed too, in a folder without other modules.
#[test]
fn snort_module_has_its_own_folder() {
    if !has_tools(&["make", "cc"]) {
        return;
    }
    let scratch = Scratch::new();
    let (own, tree) = (scratch.file("linerate"), scratch.file("tree"));
    std::os::unix::fs::symlink(program(), &own).unwrap();
    let root = root().to_str().unwrap();
    let run = |target: &str| {
        let settings = [format!("LINERATE={own}"), format!("DESTDIR={tree}")];
        tool("make", &["--no-print-directory", "-C", root, target, &settings[0], &settings[1]])
    };
    assert_eq!(run("daq").trim(), scratch.file("daq_linerate.so"));
    run("install");
    let folder = Path::new(&tree).join("usr/local/lib/linerate/daq");
    let found = files(&folder);
    assert_eq!(found, [folder.join("daq_linerate.so")]);
    assert!(Path::new(&tree).join("usr/local/share/doc/linerate/c/daq/COPYING").exists());
    run("uninstall");
    assert!(!folder.exists());
}

#[test]
fn each_verb_has_a_man_page() {
    let Some(tree) = installed() else { return };
    let pages = tree.join("share/man/man1");
    let page = |verb: &str| pages.join(format!("linerate-{verb}.1")).to_str().unwrap().to_owned();
    let verbs = verbs();
    let missing: Vec<&String> = verbs.iter().filter(|verb| !Path::new(&page(verb)).exists()).collect();
    assert!(missing.is_empty() && Path::new(&page("lab-up")).exists(), "{missing:?} have no page");
    if !has_tools(&["man"]) {
        return;
    }
    for path in files(&pages) {
        let path = path.to_str().unwrap();
        let shown = Command::new("man").args(["--warnings", "-l", path]).env("MANWIDTH", "80").output().unwrap();
        let errors = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success() && errors.is_empty(), "{path}: {errors}");
        let wide =
            String::from_utf8(shown.stdout).unwrap().lines().find(|line| line.chars().count() > 80).map(str::to_owned);
        assert_eq!(wide, None, "{path}");
    }
    // The page contains every option, and each example as a line.
    for verb in &verbs {
        let text = shown(&page(verb));
        let help = run(&[verb, "--help"]).good().output;
        // Help sentences are indented further, and may begin with an option too.
        let is_option = |line: &&str| line.len() - line.trim_start().len() <= 6;
        let options = help.lines().filter(is_option).filter_map(|line| line.trim_start().strip_prefix('-'));
        for option in options.filter_map(|line| line.split(&[' ', ',', '=', '[', '.', '\n']).next()) {
            assert!(text.contains(&format!("-{option}")), "{verb}: -{option} is not in its page");
        }
        for example in help.lines().filter_map(|line| line.strip_prefix("  linerate ")) {
            assert!(
                text.contains(&format!("linerate {example}\n")),
                "{verb}: {example:?} is not a line of its page:\n{text}"
            );
        }
    }
}

/// Formats a man page as plain text.
fn shown(page: &str) -> String {
    let output = Command::new("man").args(["-E", "UTF-8", "-l", page]).env("MANWIDTH", "200").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Typographic characters break commands that are copied from the page.
    assert!(!text.contains(['\u{2010}', '\u{2019}', '\u{2018}']), "{page}: typographic characters:\n{text}");
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn shells_load_the_completions() {
    let Some(tree) = installed() else { return };
    let share = |name: &str| tree.join("share").join(name).to_str().unwrap().to_owned();
    let bash = share("bash-completion/completions/linerate");
    let asked = format!(
        "source {bash}; COMP_WORDS=(linerate cap); COMP_CWORD=1; _linerate linerate cap linerate; echo ${{COMPREPLY[@]}}
         COMP_WORDS=(linerate flows --lev); COMP_CWORD=2; _linerate linerate --lev flows; echo ${{COMPREPLY[@]}}
         COMP_WORDS=(linerate flows --level ''); COMP_CWORD=3; _linerate linerate '' --level; echo ${{COMPREPLY[@]}}"
    );
    tool("bash", &["-n", &bash]);
    assert_eq!(tool("bash", &["-c", &asked]), "capture\n--level\ncounters tcp stats\n");
    if has_tools(&["zsh"]) {
        let zsh = share("zsh/site-functions");
        tool("zsh", &["-n", &format!("{zsh}/_linerate")]);
        let asked = format!("fpath=({zsh} $fpath); autoload -Uz compinit; compinit -u -D; echo $_comps[linerate]");
        assert_eq!(tool("zsh", &["-f", "-c", &asked]), "_linerate\n");
    }
    if has_tools(&["fish"]) {
        let fish = share("fish/vendor_completions.d/linerate.fish");
        tool("fish", &["-n", &fish]);
        let completed = tool("fish", &["-N", "-c", &format!("source {fish}; complete -C 'linerate cap'")]);
        assert!(completed.starts_with("capture\t"), "{completed}");
    }
}

#[test]
fn c_programs_find_the_library() {
    let Some(tree) = installed() else { return };
    if !has_tools(&["pkg-config"]) {
        return;
    }
    let (pc, scratch) = (tree.join("lib/pkgconfig"), Scratch::new());
    let sysroot = tree.parent().unwrap().parent().unwrap();
    let asked = Command::new("pkg-config")
        .args(["--cflags", "--libs", "linerate-ring"])
        .env("PKG_CONFIG_PATH", pc)
        .env("PKG_CONFIG_SYSROOT_DIR", sysroot)
        .output()
        .unwrap();
    let flags = String::from_utf8(asked.stdout).unwrap();
    assert!(flags.contains("-llinerate_ring"), "{flags}");
    let (program, example) = (scratch.file("ring_count"), root().join("examples/c/ring_count.c"));
    let flags: Vec<&str> = flags.split_whitespace().collect();
    tool("cc", &[&["-Wall", "-Werror", "-o", &program, example.to_str().unwrap()], &flags[..]].concat());
    let ended = Command::new(program).arg("no-such-ring").env("LD_LIBRARY_PATH", tree.join("lib")).output().unwrap();
    assert!(String::from_utf8_lossy(&ended.stderr).contains("no writer shares it"), "{ended:?}");
}

#[test]
fn systemd_accepts_the_units() {
    let Some(tree) = installed() else { return };
    if !has_tools(&["systemd-analyze"]) {
        return;
    }
    // systemd-analyze requires the program at the path of the unit.
    let scratch = Scratch::new();
    for unit in files(&tree.join("lib/systemd/system")) {
        let text = std::fs::read_to_string(&unit).unwrap();
        assert!(text.contains("/opt/linerate/bin/linerate") && !text.contains("@COMMON@"), "{text}");
        let own = text.replace("/opt/linerate/bin/linerate", program().to_str().unwrap());
        let path = scratch.file(&unit.file_name().unwrap().to_str().unwrap().replace("@.", "@eth0."));
        std::fs::write(&path, own).unwrap();
        let output = Command::new("systemd-analyze").args(["verify", "--man=no", &path]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let own: Vec<&str> = errors.lines().filter(|line| line.contains("linerate")).collect();
        assert!(own.is_empty(), "{own:?}");
    }
}

/// Units that only write files deny network access; units of a fleet need it.
#[test]
fn units_without_network_use_deny_it() {
    for (unit, is_local) in [("flows@", true), ("record@", true), ("collect", false), ("ship@", false)] {
        let path = root().join(format!("packaging/systemd/linerate-{unit}.service.in"));
        let text = std::fs::read_to_string(path).unwrap();
        let has = |setting: &str| text.lines().any(|line| line == setting);
        let restricts = has("IPAddressDeny=any") && has("IPAddressAllow=localhost");
        let says_why = text.contains("\n# No IPAddressDeny: ");
        assert_eq!((restricts, says_why), (is_local, !is_local), "{unit}");
        assert!(is_local || !text.contains("\nIPAddress"), "{unit}");
    }
    let common = std::fs::read_to_string(root().join("packaging/systemd/common")).unwrap();
    assert!(!common.contains("IPAddress"), "the common part also applies to units of a fleet");
}

/// Arguments of a unit's ExecStart with these words and variables replaced; empty words are removed.
fn arguments(unit: &str, values: &[(&str, &str)]) -> Vec<String> {
    let path = installed().unwrap().join("lib/systemd/system").join(unit);
    let text = std::fs::read_to_string(path).unwrap();
    let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=/opt/linerate/bin/linerate ")).unwrap();
    let filled = |word: &str| values.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value));
    assert!(values.iter().all(|(name, _)| command.contains(name)), "{command}");
    command.split(' ').map(filled).filter(|word| !word.is_empty()).collect()
}

#[test]
fn fleet_units_ship_and_collect() {
    if installed().is_none() {
        return;
    }
    let scratch = Scratch::new();
    let [state, spool, frames] = ["state", "spool", "frames.pcap"].map(|name| scratch.file(name));
    let packets = "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)";
    run(&["generate", "-q", "--to", &format!("pcap:{frames}"), "-c", "9", "-k", packets]).good();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listens = format!("127.0.0.1:{port}");
    let collect = arguments("linerate-collect.service", &[("${STATE_DIRECTORY}", &state), (":4739", &listens)]);
    let collector = start(&collect.iter().map(String::as_str).collect::<Vec<_>>());
    wait_until("the collector listens", || TcpStream::connect(&listens).is_ok());
    run(&["flows", "-q", "-r", &frames, "-w", &format!("ipfix+tcp://{listens}")]).good();
    collector.interrupt().good().shows("9 records in");
    assert_eq!(files(Path::new(&state)).len(), 1);
    // Ships a capture to an unreachable broker.
    let values = [
        ("${TARGET}", "kafka://127.0.0.1:1/flows"),
        ("${STATE_DIRECTORY}", &spool),
        ("${SHIP}", ",end=0"),
        ("$OPTIONS", ""),
        ("%l", "host"),
        ("%i", "eth1"),
    ];
    let mut ship = arguments("linerate-ship@.service", &values);
    assert_eq!(ship[..2], ["flows", "eth1"]);
    ship.splice(1..2, ["-r".to_owned(), frames]);
    let shipped = run(&ship.iter().map(String::as_str).collect::<Vec<_>>()).good();
    shipped.shows("9 records spooled for kafka://127.0.0.1:1/flows");
    assert!(files(&Path::new(&spool).join("eth1")).len() >= 2, "a batch and its journal");
}

#[test]
fn debian_package_is_complete() {
    if !has_tools(&["make", "cc", "dpkg-deb", "objdump", "strip"]) {
        return;
    }
    // Its compression takes a minute.
    let package = make("deb", &["DPKG_DEB_COMPRESSOR_TYPE=none"]);
    let package = root().join(package.trim());
    let package = package.to_str().unwrap();
    let control = tool("dpkg-deb", &["--field", package]);
    for part in ["Package: linerate\n", "Depends: libc6 (>= 2.", "Recommends: libcap2-bin"] {
        assert!(control.contains(part), "{part} is not in {control}");
    }
    let listed = tool("dpkg-deb", &["--contents", package]);
    for part in
        ["root/root", "./usr/bin/linerate", "man1/linerate-capture.1.gz", "linerate-ring.pc", "doc/linerate/copyright"]
    {
        assert!(listed.contains(part), "{part} is not in {listed}");
    }
    assert!(!listed.contains("/usr/local"), "{listed}");
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    tool("dpkg-deb", &["--raw-extract", package, &tree]);
    tool("sh", &["-c", &format!("cd {tree} && md5sum --check --quiet DEBIAN/md5sums")]);
    assert!(std::fs::read_to_string(format!("{tree}/DEBIAN/md5sums")).unwrap().contains("  usr/bin/linerate\n"));
    for script in ["postinst", "prerm", "postrm"] {
        tool("sh", &["-n", &format!("{tree}/DEBIAN/{script}")]);
    }
    assert!(tool(&format!("{tree}/usr/bin/linerate"), &["--version"]).starts_with("linerate "));
}

#[test]
fn version_lists_features_and_build() {
    let shown = run(&["--version"]).good().output;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    let build = lines[2].strip_prefix("build: ").unwrap_or_default();
    assert!(lines[1].starts_with("features: +parquet") && build.contains(std::env::consts::ARCH), "{shown}");
    assert!(build.contains("commit ") && lines.iter().all(|line| line.len() <= 80), "{shown}");
    let version = lines[0].strip_prefix("linerate ").unwrap();
    let python = std::fs::read_to_string(root().join("python/pyproject.toml")).unwrap();
    assert!(python.contains(&format!("\nversion = \"{version}\"\n")), "{python}");
    assert_eq!(run(&["-V"]).good().output.lines().count(), 1);
    assert_eq!(run(&["capture", "-V"]).good().output.lines().count(), 1);
}

/// Errors, doctor, the guide, the package and the units name the same capabilities.
#[test]
fn capabilities_are_the_same_everywhere() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let capabilities = linerate_backends::GRANT.split(' ').find(|word| word.starts_with("cap_")).unwrap();
    for path in ["docs/guide/install.md", "packaging/debian/postinst", "crates/cli/src/verbs/doctor/golden/mlx5.txt"] {
        let text = read(path);
        assert!(text.contains(&format!("setcap {capabilities} ")), "{path}");
        assert_eq!(text.matches("setcap cap_").count(), 1, "{path}");
    }
    assert!(!read("README.md").contains("setcap"), "only the guide contains it");
    let units = read("packaging/systemd/common");
    let of_units = capabilities.trim_end_matches("+p").to_uppercase().replace(',', " ");
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert!(units.contains(&format!("{key}={of_units}\n")), "{key}");
    }
}

/// The interface name is passed as one argument without a shell, and the default limits disk usage.
#[test]
fn recorder_unit_limits_disk_usage_and_uses_no_shell() {
    let unit = std::fs::read_to_string(root().join("packaging/systemd/linerate-record@.service.in")).unwrap();
    let setting = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let command = setting("ExecStart=@BINDIR@/linerate ");
    assert!(!command.contains('\'') && command.contains("$KEEP"), "{command}");
    let scratch = Scratch::new();
    let frames = scratch.file("frames.pcap");
    run(&["generate", "-q", "--to", &format!("pcap:{frames}"), "-c", "9", "--udp"]).good();
    let keep = setting("Environment=\"KEEP=").trim_end_matches('"');
    assert!(keep.contains("--keep-size "), "{keep}");
    let state = scratch.file("state");
    std::fs::create_dir(&state).unwrap();
    let command = command.replace("$KEEP", keep).replace("${STATE_DIRECTORY}", &state).replace("%%", "\0");
    let command = command.replacen("%i", &format!("-r {frames}"), 1).replace("%i", "eth1").replace('\0', "%");
    run(&command.split(' ').collect::<Vec<_>>()).good();
    assert_eq!(files(Path::new(&state)).len(), 1);
}
