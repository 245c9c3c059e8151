//! Parts of an output that stand by themselves, for whoever reads single ones later; and the file beside it that says so.

use super::{MODE, Output, Partial};
use crate::compression::Encoder;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io;

impl Output {
    /// Bytes in it so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Lets what follows be read without what is there: a compressed stream is ended and another begun, which readers take
    /// for one.
    pub(crate) fn part(&mut self) -> Result<(), Partial> {
        let Some(encoder) = self.encoder.as_mut().filter(|encoder| !encoder.tail().is_empty()) else { return Ok(()) };
        let next = Encoder::new(encoder.compression()).map_err(|reason| Partial { written: 0, reason })?;
        let ended = std::mem::replace(&mut **encoder, next);
        let tail = ended.tail();
        super::write_all(&mut *self.target, tail).map_err(|partial| Partial { written: 0, ..partial })?;
        self.written += tail.len() as u64;
        Ok(())
    }

    /// A new file beside this one, called as it is with `ending` behind; an old one of that name is emptied. `None` where
    /// this is no regular file.
    pub(crate) fn beside(&self, ending: &str) -> io::Result<Option<(File, String)>> {
        let Some(place) = &self.place else { return Ok(None) };
        let name = format!("{}{ending}", self.called.as_ref().unwrap_or(&place.name));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A FIFO of that name would wait for its reader.
        let flags = flags | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = File::from(openat(&place.folder, &*name, flags, Mode::from_raw_mode(MODE))?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is there, and no regular file"));
        }
        Ok(Some((file, name)))
    }
}
