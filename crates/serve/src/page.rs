//! Files of the web page, embedded in the program. They are served as written, as separate modules; the chart is uPlot
//! (MIT, `page/uplot.LICENSE`), chosen because it is 51 KB and draws from plain arrays.

/// File of the page.
macro_rules! part {
    ($path:literal, $kind:expr, $file:literal) => {
        ($path, $kind, include_bytes!(concat!("page/", $file)))
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Files: path, content type, bytes.
const FILES: &[(&str, &str, &[u8])] = &[
    part!("/", "text/html; charset=utf-8", "index.html"),
    part!("/page/style.css", STYLE, "style.css"),
    part!("/page/main.js", SCRIPT, "main.js"),
    part!("/page/api.js", SCRIPT, "api.js"),
    part!("/page/dom.js", SCRIPT, "dom.js"),
    part!("/page/run.js", SCRIPT, "run.js"),
    part!("/page/chart.js", SCRIPT, "chart.js"),
    part!("/page/editor.js", SCRIPT, "editor.js"),
    part!("/page/frame.js", SCRIPT, "frame.js"),
    part!("/page/capture.js", SCRIPT, "capture.js"),
    part!("/page/measure.js", SCRIPT, "measure.js"),
    part!("/page/flows.js", SCRIPT, "flows.js"),
    part!("/page/log.js", SCRIPT, "log.js"),
    part!("/page/icon.svg", "image/svg+xml", "icon.svg"),
    part!("/page/uplot.js", SCRIPT, "uplot.js"),
    part!("/page/uplot.css", STYLE, "uplot.css"),
    part!("/page/uplot.LICENSE", TEXT, "uplot.LICENSE"),
];

/// Returns the content type and bytes of the file at a path.
pub(crate) fn asset(path: &str) -> Option<(&'static str, &'static [u8])> {
    FILES.iter().find(|(known, ..)| *known == path).map(|(_, kind, bytes)| (*kind, *bytes))
}

/// Returns whether a POST to this path changes nothing and needs no log entry.
pub(crate) fn is_read_only(path: &str) -> bool {
    let asked = ["check", "write", "read", "capture/frames", "capture/frame", "measure/estimate", "flows"];
    path.starts_with("/monitor/") || path.strip_prefix("/api/v1/").is_some_and(|name| asked.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_BYTES: usize = 120_000;

    #[test]
    fn files_are_small_and_have_no_external_references() {
        let all: usize = FILES.iter().map(|(.., bytes)| bytes.len()).sum();
        assert!(all < MOST_BYTES, "{all} bytes");
        for (path, _, bytes) in FILES.iter().filter(|(path, ..)| !path.contains("uplot")) {
            let text = String::from_utf8_lossy(bytes);
            for never in [
                "innerHTML",
                "outerHTML",
                "insertAdjacent",
                "document.write",
                "eval(",
                "https://",
                "//cdn",
                " style=",
                "onclick=",
            ] {
                assert!(!text.contains(never), "{path}: {never}");
            }
            assert!(
                text.lines().count() <= 400 && text.lines().all(|line| line.chars().count() <= 160),
                "{path} is too long"
            );
        }
        assert_eq!(asset("/page/../etc/passwd"), None);
    }
}
