//! Parts of an output that stand by themselves, for whoever reads single ones later; and the file beside it that says so.

use super::{MODE, Output, Partial, Replaced};
use crate::compression::Encoder;
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};
use std::fs::File;
use std::io;

impl Output {
    /// Bytes in it so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that are best written at once.
    #[inline]
    pub(crate) fn piece(&self) -> usize {
        self.piece
    }

    /// Lets what follows be read without what is there: a compressed stream is ended and another begun, which readers take
    /// for one. Blocks of LZ4 stand by themselves behind the head of their frame. Where that fails the stream goes on as it was; `written` are bytes of its end that are there.
    pub(crate) fn begin_part(&mut self) -> Result<(), Partial> {
        let Some(encoder) = self.encoder.as_mut().filter(|encoder| encoder.is_joined()) else { return Ok(()) };
        let next = Encoder::new(encoder.compression()).map_err(|reason| Partial { written: 0, reason })?;
        let tail = encoder.tail();
        if let Err(partial) = super::write_all(&mut *self.target, tail) {
            // Torn bytes of it stay only where the target takes nothing back.
            let torn = partial.written;
            self.torn = if torn > 0 && self.target.take_back(torn as u64).unwrap_or(false) { 0 } else { torn };
            return Err(Partial { written: self.torn, ..partial });
        }
        self.written += tail.len() as u64;
        **encoder = next;
        Ok(())
    }

    /// A new file beside this one, called as it is with `ending` behind; what an old one of that name has is replaced. `None` where
    /// this is no regular file. Files that are opened anew are then called so that they empty none.
    pub(crate) fn beside(&mut self, ending: &str) -> io::Result<Option<(Replaced, String)>> {
        let Some(place) = &self.place else { return Ok(None) };
        self.beside = Some(ending.to_owned());
        let name = format!("{}{ending}", self.called.as_ref().unwrap_or(&place.name));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // A FIFO of that name would wait for its reader.
        let flags = flags | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = |flags| openat(&place.folder, &*name, flags, Mode::from_raw_mode(MODE));
        let made = open(flags | OFlags::EXCL);
        self.is_beside_new = made.is_ok();
        let file = File::from(made.or_else(|_| open(flags))?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is there, and no regular file"));
        }
        Ok(Some((Replaced::new(file)?, name)))
    }

    /// Removes the files that were made when this was opened, if they got no byte: a run that is refused leaves nothing. What cannot be
    /// removed stays, empty.
    pub(crate) fn remove_new(&mut self) {
        let Some(place) = self.place.as_ref().filter(|_| self.written == 0) else { return };
        let name = self.called.as_ref().unwrap_or(&place.name);
        let beside = self.beside.iter().filter(|_| self.is_beside_new).map(|ending| format!("{name}{ending}"));
        for name in self.is_new.then(|| name.clone()).into_iter().chain(beside) {
            let is_empty = statat(&place.folder, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|data| data.st_size == 0);
            let _ = is_empty.then(|| unlinkat(&place.folder, &name, AtFlags::empty()));
        }
    }
}
