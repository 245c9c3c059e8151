//! Independent parts of an output, for readers with random access; and the companion file (index) that lists them.

use super::{MODE, Output, PartialWrite, ReplacedFile};
use crate::compression::Encoder;
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use std::fs::File;
use std::io;

impl Output {
    /// Returns the number of bytes written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the preferred size of a write.
    #[inline]
    pub(crate) fn piece(&self) -> usize {
        self.piece
    }

    /// Makes later output independent of earlier output: a compressed stream is ended and another one started, which
    /// readers treat as one. LZ4 blocks are independent given the frame header. On failure the stream continues
    /// unchanged; `written` are the bytes of its tail left in the output.
    pub(crate) fn start_part(&mut self) -> Result<(), PartialWrite> {
        let Some(encoder) = self.encoder.as_mut().filter(|encoder| encoder.is_joined()) else { return Ok(()) };
        let next = Encoder::new(encoder.compression()).map_err(|reason| PartialWrite { written: 0, reason })?;
        let tail = encoder.tail();
        if let Err(partial) = super::write_all(&mut *self.target, tail) {
            // A torn tail remains only if the target cannot remove it.
            let torn = partial.written;
            self.torn = if torn > 0 && self.target.take_back(torn as u64).unwrap_or(false) { 0 } else { torn };
            return Err(PartialWrite { written: self.torn, ..partial });
        }
        self.written += tail.len() as u64;
        **encoder = next;
        Ok(())
    }

    /// Creates a companion file, named like this one plus `ending`; the content of an old one is replaced. `None` if
    /// this is not a regular file. Files opened later then avoid names with such a companion.
    pub(crate) fn companion(&mut self, ending: &str) -> io::Result<Option<(ReplacedFile, String)>> {
        let Some(place) = &self.place else { return Ok(None) };
        self.companion = Some(ending.to_owned());
        let name = format!("{}{ending}", self.called.as_ref().unwrap_or(&place.name));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A FIFO of that name would block.
        let flags = flags | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = |flags| openat(&place.folder, &*name, flags, Mode::from_raw_mode(MODE));
        let made = open(flags | OFlags::EXCL);
        self.is_companion_new = made.is_ok();
        let file = File::from(made.or_else(|_| open(flags))?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("already exists and is not a regular file"));
        }
        Ok(Some((ReplacedFile::new(file)?, name)))
    }

    /// Removes the files created by opening this output if nothing was written: a refused run leaves no files. Files
    /// that cannot be removed stay, empty.
    pub(crate) fn remove_new(&mut self) {
        let Some(place) = self.place.as_ref().filter(|_| self.written == 0) else { return };
        let name = self.called.as_ref().unwrap_or(&place.name);
        let companion = self.companion.iter().filter(|_| self.is_companion_new).map(|ending| format!("{name}{ending}"));
        for name in self.is_new.then(|| name.clone()).into_iter().chain(companion) {
            let is_empty = statat(&place.folder, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|data| data.st_size == 0);
            let _ = is_empty.then(|| unlinkat(&place.folder, &name, AtFlags::empty()));
        }
    }
}
