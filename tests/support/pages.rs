//! Pages, and the fenced blocks in them.

use std::fs;
use std::path::{Path, PathBuf};

/// A page of the book, or the front page of the repository.
pub struct Page {
    /// From the root of the repository.
    pub name: String,
    /// The whole of it.
    pub text: String,
}

/// A fenced block.
pub struct Block {
    /// The words behind the fence.
    pub words: Vec<String>,
    /// Between the fences.
    pub lines: Vec<String>,
    /// Where its first line stands in the page, from 1.
    pub line: usize,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// All pages: those below `docs`, and the front page.
pub fn all() -> Vec<Page> {
    let docs = super::files(&root().join("docs"));
    let found: Vec<Page> = docs
        .into_iter()
        .chain([root().join("README.md")])
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| Page {
            name: path.strip_prefix(root()).expect("a path below the root").to_string_lossy().into_owned(),
            text: fs::read_to_string(&path).expect("a page in UTF-8"),
        })
        .collect();
    assert!(found.len() > 10, "the pages were not found");
    found
}

impl Page {
    /// Its fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let (mut blocks, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
        for (index, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), open.as_mut()) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(info), None) => {
                    let words = info.split_whitespace().map(str::to_owned).collect();
                    open = Some(Block { words, lines: Vec::new(), line: index + 2 });
                }
                (None, Some(block)) => block.lines.push(line.to_owned()),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block without an end", self.name);
        blocks
    }

    /// Its lines outside of fenced blocks.
    pub fn prose(&self) -> Vec<&str> {
        let mut inside = false;
        let lines = self.text.lines().filter(|line| {
            let fence = line.starts_with("```");
            inside ^= fence;
            !inside && !fence
        });
        lines.collect()
    }
}
