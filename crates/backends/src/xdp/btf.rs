//! The number of a kernel function in the kernel's own type information, by which programs call it
//! (Documentation/bpf/btf.rst).

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const KIND_FUNC: u32 = 12;
const TYPE_BYTES: usize = 12;

/// Returns the number of a function; `None` if the kernel lacks it or has no type information.
pub(super) fn function(name: &str) -> Option<u32> {
    find(&std::fs::read(PATH).ok()?, name)
}

fn find(btf: &[u8], name: &str) -> Option<u32> {
    if u16::from_ne_bytes(btf.get(..2)?.try_into().ok()?) != MAGIC {
        return None;
    }
    // struct btf_header: magic, version, flags, hdr_len, type_off, type_len, str_off, str_len.
    let [header, type_start, type_bytes, string_start, string_bytes] =
        [4, 8, 12, 16, 20].map(|at| word(btf, at).map(|word| word as usize));
    let part = |start: usize, bytes: usize| btf.get(header?.checked_add(start)?..)?.get(..bytes);
    let (mut types, strings) = (part(type_start?, type_bytes?)?, part(string_start?, string_bytes?)?);
    let mut id = 1;
    while let Some([name_at, info, _]) = first_words(types) {
        let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        if kind == KIND_FUNC && is_named(strings, name_at as usize, name) {
            return Some(id);
        }
        types = types.get(TYPE_BYTES + extra(kind, members)?..)?;
        id += 1;
    }
    None
}

/// Returns the bytes after the common part of a type.
fn extra(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Structure, union, section, 64-bit enumeration.
        4 | 5 | 15 | 19 => 12 * members,
        // Enumeration, function prototype.
        6 | 13 => 8 * members,
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn is_named(strings: &[u8], at: usize, name: &str) -> bool {
    strings.get(at..).is_some_and(|text| text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0))
}

fn first_words(bytes: &[u8]) -> Option<[u32; 3]> {
    Some([word(bytes, 0)?, word(bytes, 4)?, word(bytes, 8)?])
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two types: an integer `a`, and the function `fun`.
    fn sample() -> Vec<u8> {
        let words = [24u32, 0, 28, 28, 7, 1, 1 << 24, 4, 0, 3, KIND_FUNC << 24, 1];
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(b"\0a\0fun\0");
        bytes
    }

    #[test]
    fn functions_are_found_by_name() {
        assert_eq!(find(&sample(), "fun"), Some(2));
        assert_eq!(find(&sample(), "fu"), None);
        assert_eq!(find(&sample(), "a"), None, "an integer is not a function");
    }

    proptest! {
        #[test]
        fn damaged_type_information_is_parsed(at in 0usize..60, value: u8, length in 0usize..60) {
            let mut bytes = sample();
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(length.max(1));
            let _ = find(&bytes, "fun");
        }
    }
}
