//! Where tshark and we differ, and why. Each row must be met by some frame of the corpus.

/// One kind of difference.
pub struct Row {
    /// How the paths of the captures in the corpus begin.
    pub captures: &'static str,
    /// What we say at the first place where we differ: the name of a layer, or why there is none.
    pub ours: &'static str,
    /// What tshark says there.
    pub theirs: &'static str,
    /// Why, and who is right.
    pub why: &'static str,
}

/// All of them.
pub const ROWS: &[Row] = &[];
