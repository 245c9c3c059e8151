//! Histogram of frame sizes: the buckets of RFC 2819.

/// Lower bounds of the buckets: those of RFC 2819 section 5 (etherStatsUndersizePkts, etherStatsPkts64Octets and so on,
/// oversize frames last), with the FCS.
const BEGINNINGS: [u32; Sizes::BUCKETS] = [0, 64, 65, 128, 256, 512, 1024, 1519];
/// Bytes of the frame check sequence, which frames in memory do not have.
const FCS: u32 = 4;
/// The bucket of each length without FCS; greater lengths are in the last bucket.
static BUCKET_OF: [u8; LENGTHS] = bucket_of();
const LENGTHS: usize = (BEGINNINGS[Sizes::BUCKETS - 1] - FCS) as usize + 1;

/// Number of frames per size bucket. Sizes include the FCS: 64 stands for 60 bytes in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes(pub [u64; Sizes::BUCKETS]);

impl Sizes {
    /// Number of buckets.
    pub const BUCKETS: usize = 8;

    /// Iterates over the buckets in order: smallest and greatest size (`None`: unlimited), and the frames.
    pub fn buckets(&self) -> impl Iterator<Item = (u32, Option<u32>, u64)> + use<> {
        let mosts = BEGINNINGS.into_iter().skip(1).map(|next| Some(next - 1)).chain([None]);
        BEGINNINGS.into_iter().zip(mosts).zip(self.0).map(|((least, most), frames)| (least, most, frames))
    }

    /// Returns the bucket of a frame of `wire` bytes, without FCS.
    #[inline]
    pub fn bucket(wire: u32) -> usize {
        usize::from(BUCKET_OF[(wire as usize).min(LENGTHS - 1)])
    }

    /// Returns the lower bounds of all buckets but the first, in bytes without FCS.
    pub fn bounds() -> impl Iterator<Item = u32> {
        BEGINNINGS.into_iter().skip(1).map(|size| size - FCS)
    }
}

const fn bucket_of() -> [u8; LENGTHS] {
    let mut table = [0; LENGTHS];
    let mut length = 0;
    while length < table.len() {
        let mut bucket = Sizes::BUCKETS - 1;
        while BEGINNINGS[bucket] as usize > length + FCS as usize {
            bucket -= 1;
        }
        table[length] = bucket as u8;
        length += 1;
    }
    table
}
