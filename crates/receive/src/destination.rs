//! Where finished frames go.

use crate::frames::Frame;

/// Takes finished frames.
pub trait Destination: Send {
    /// Takes what it needs of a frame; its memory is used again afterwards.
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError>;

    /// There are no more.
    fn finish(&mut self) -> Result<(), DestinationError>;
}

/// Frames go nowhere any more.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// A byte is not what it has to be.
    #[error("{0}")]
    Mismatch(#[from] crate::pattern::Mismatch),
}

/// Keeps nothing.
#[derive(Debug, Default)]
pub struct Discard;

impl Destination for Discard {
    fn accept(&mut self, _: &Frame) -> Result<(), DestinationError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DestinationError> {
        Ok(())
    }
}
