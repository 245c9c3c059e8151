//! Runs the commands of the pages unchanged.
//!
//! A block ```` ```console ```` has commands after `$ `, continued after a `\`, each followed by its standard output
//! and standard error (`compare.rs` compares them). The commands of a page run in one shell in an empty folder.
//! Each must exit with status 0, unless the next command is `echo $?`. The next command runs after a command started
//! with `&` has opened its ports.
//!
//! A block ```` ```console root ```` needs root and is skipped otherwise; the rest of the page must work without it.
//! As root each page runs in its own namespaces with:
//! - `eth0` and `eth1`, each receiving 100 packets per second of DNS, HTTPS and ping;
//! - `eth2` and `eth3`, connected to each other;
//! - `sudo`.
//!
//! Further words name requirements of the block: programs, `duckdb` (the Python module), or `dpdk` (the plugin).
//!
//! A block of another kind with a second word, such as ```` ```toml mix.toml ````, is a file with that name.

use super::compare::difference;
use linerate_tests::support::dpdk::plugin;
use linerate_tests::support::pages::{self, Block, Page, root};
use linerate_tests::support::program::program;
use linerate_tests::support::{Scratch, has_peer, has_tools, is_root, skip};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Mutex;

/// A command of a page.
struct Step {
    command: String,
    output: Vec<String>,
    line: usize,
}

/// Separates the output of a command from its status.
const MARK: char = '\u{1e}';

/// Waits until every run has opened its ports; it drops its privileges then.
const OPENED: &str = r#"
__opened() {
    local tries pid
    for tries in $(seq 200); do
        sleep 0.1
        for pid in $(pgrep -x linerate); do
            grep -q 'NoNewPrivs:.*1' /proc/$pid/status 2>/dev/null || [ ! -e /proc/$pid ] || continue 2
        done
        return
    done
}
"#;

/// Sets up the namespaces of a page that runs as root.
const MACHINE: &str = r#"
mount -t tmpfs tmpfs /run && mkdir /run/netns && mount -t sysfs sysfs /sys
ip link set lo up
ip netns add far
for n in 0 1 2 3; do
    ip link add eth$n type veth peer name far$n netns far
    # No packets from the kernel itself.
    ip link set eth$n addrgenmode none && ip link set eth$n up
    ip -n far link set far$n addrgenmode none && ip -n far link set far$n up
done
ip -n far link add joined type bridge mcast_snooping 0
ip -n far link set joined addrgenmode none && ip -n far link set joined up
ip -n far link set far2 master joined
ip -n far link set far3 master joined
# Disables segmentation offload, and lets the peers receive from xdp-live.
for n in 2 3; do
    ethtool -K eth$n tso off gso off gro on
    ip netns exec far ethtool -K far$n tso off gso off gro on
done
for n in 0 1; do
    linerate generate -q --to "packet:far$n?netns=far" --rate 100pps -c 0 \
        -k "ip(src=10.0.$n.1..10.0.$n.9,dst=192.0.2.53)/udp(sport=40000..40099,dport=53)" \
        -k "ip(src=10.0.$n.1..10.0.$n.9,dst=192.0.2.80)/tcp(sport=50000..50099,dport=443,flags=ack)/payload(pattern=00,len=900)" \
        -k "ip(src=10.0.$n.1,dst=192.0.2.1)/icmp" &
done
"#;

fn steps(page: &str, block: &Block) -> Vec<Step> {
    if block.words[0] == "console" {
        return commands(page, block);
    }
    let command = format!("cat > {} <<'__END__'\n{}\n__END__", block.words[1], block.lines.join("\n"));
    vec![Step { command, output: Vec::new(), line: block.line }]
}

fn commands(page: &str, block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_continued = false;
    for (index, line) in block.lines.iter().enumerate() {
        let number = block.line + index;
        if is_continued {
            let step = steps.last_mut().expect("a continued command");
            step.command += "\n";
            step.command += line;
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), output: Vec::new(), line: number });
        } else {
            let step = steps.last_mut().unwrap_or_else(|| panic!("{page}:{number}: output before a command"));
            step.output.push(line.clone());
            continue;
        }
        is_continued = line.ends_with('\\');
    }
    steps
}

/// Returns whether a block has something to run and its requirements are met; reports missing ones.
fn can_run(block: &Block) -> bool {
    if block.words.first().is_none_or(|kind| kind != "console") {
        return block.words.len() == 2 && block.words[1].contains('.');
    }
    block.words.iter().skip(1).all(|need| match need.as_str() {
        "root" => {
            if !is_root() {
                skip("commands of a page that need root");
            }
            is_root()
        }
        "duckdb" => has_peer(root().join("target/python/bin/python").exists(), "DuckDB in target/python"),
        "dpdk" => plugin().is_some(),
        tool => has_tools(&[tool]),
    })
}

/// Runs commands in one shell in an empty folder. Returns the output and status of each, and an error if the shell
/// /// ended before the last command.
fn run(steps: &[Step], uses_plugin: bool) -> (Vec<(String, i32)>, Option<String>) {
    let (scratch, tools) = (Scratch::new(), Scratch::new());
    symlink(program(), tools.file("linerate")).unwrap();
    symlink(program().with_file_name("linerate-bench"), tools.file("linerate-bench")).unwrap();
    // Already root; exec makes signals reach the command, as with the real sudo.
    std::fs::write(tools.file("sudo"), "#!/bin/sh\nexec \"$@\"\n").unwrap();
    std::fs::set_permissions(tools.file("sudo"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut script = format!("exec 2>&1\n{OPENED}");
    if is_root() {
        script += MACHINE;
    }
    script += &format!("__opened\nprintf '{MARK}'\n");
    for step in steps {
        let wait = if step.command.ends_with('&') { "__opened\n" } else { "" };
        script +=
            &format!("{}\n__status=$?; {wait}printf '{MARK}%d{MARK}' $__status; (exit $__status)\n", step.command);
    }
    let script_file = tools.file("script");
    std::fs::write(&script_file, script).unwrap();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "300"]);
    if is_root() {
        command.args(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    }
    let python = root().join("target/python/bin");
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["bash", &script_file]).current_dir(scratch.file("")).env_remove("LINERATE_CORPUS");
    command.env("PATH", format!("{}:{}:{path}:/usr/sbin:/sbin", tools.file(""), python.display()));
    command.env("HOME", scratch.file("")).env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
    if let Some(plugin) = uses_plugin.then(plugin).flatten() {
        command.env("LINERATE_DPDK", plugin);
    }
    let output = command.output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let ended = || format!("the shell ended ({}) before the last command:\n{text}\n{errors}", output.status);
    let Some((before, rest)) = text.split_once(MARK) else { return (Vec::new(), Some(ended())) };
    assert_eq!(before, "", "output of the set-up");
    let mut parts = rest.split(MARK);
    let mut done = Vec::new();
    while let (Some(printed), Some(status)) = (parts.next(), parts.next()) {
        done.push((printed.to_owned(), status.parse().expect("a status")));
    }
    let why = (done.len() < steps.len()).then(ended);
    (done, why)
}

/// Differences between a page and its run.
fn differences_of(page: &Page) -> Vec<String> {
    let steps: Vec<Step> =
        page.blocks().iter().filter(|block| can_run(block)).flat_map(|block| steps(&page.name, block)).collect();
    if steps.is_empty() {
        return Vec::new();
    }
    let uses_plugin = page.blocks().iter().any(|block| block.words.iter().any(|word| word == "dpdk"));
    let (done, ended) = run(&steps, uses_plugin);
    let mut wrong: Vec<String> = ended.map(|why| format!("{}: {why}", page.name)).into_iter().collect();
    for (number, ((printed, status), step)) in done.into_iter().zip(&steps).enumerate() {
        let says_status = steps.get(number + 1).is_some_and(|next| next.command == "echo $?");
        if status != 0 && !says_status {
            wrong.push(format!("{}:{}: {}\nends with {status}:\n{printed}", page.name, step.line, step.command));
        } else if let Some(difference) = difference(&step.output, &printed) {
            wrong.push(format!("{}:{}: {}\n{difference}", page.name, step.line, step.command));
        }
    }
    wrong
}

/// Number of pages that run in parallel.
const PARALLEL: usize = 6;

/// `LINERATE_PAGE=capture` runs one page. On a busy machine timing may differ from the page, so a page that fails in
/// parallel is run again without others.
#[test]
fn commands_print_what_the_pages_show() {
    let only = std::env::var("LINERATE_PAGE").unwrap_or_default();
    let pages: Vec<Page> = pages::all().into_iter().filter(|page| page.name.contains(&only)).collect();
    assert!(!pages.is_empty(), "no page contains {only}");
    let (next, again) = (Mutex::new(pages.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(page) = { next.lock().unwrap().next() } {
                    let found = differences_of(page);
                    if !found.is_empty() {
                        eprintln!("RUNNING AGAIN, WITHOUT OTHERS: {}:\n{}", page.name, found.join("\n\n"));
                        again.lock().unwrap().push(page);
                    }
                }
            });
        }
    });
    let wrong: Vec<String> = again.into_inner().unwrap().into_iter().flat_map(differences_of).collect();
    assert!(wrong.is_empty(), "{} commands:\n\n{}", wrong.len(), wrong.join("\n\n"));
}
