//! How long a device takes to come back: RFC 2544, sections 26.5 and 26.6, and RFC 6201. Times are seconds of one clock.

/// The time that a device takes to forward all again after it was overloaded (26.5): from when the load was halved to when the last lost
/// frame was sent; 0 where none was lost from then on.
pub fn recovery(halved: f64, last_lost: Option<f64>) -> f64 {
    last_lost.map_or(0.0, |lost| (lost - halved).max(0.0))
}

/// The time of a reset, by the frames that were lost meanwhile (RFC 6201, section 4.1.1).
pub fn reset_by_loss(lost: u64, load: f64) -> f64 {
    lost as f64 / load
}

/// The same by the time of the last frame before and of the first one after it (RFC 6201, section 4.1.2).
pub fn reset_by_times(last_before: f64, first_after: f64) -> f64 {
    (first_after - last_before).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_sections() {
        assert_eq!((recovery(10.0, Some(10.5)), recovery(10.0, Some(9.0)), recovery(10.0, None)), (0.5, 0.0, 0.0));
        assert_eq!((reset_by_loss(3000, 1000.0), reset_by_times(5.0, 8.25)), (3.0, 3.25));
    }
}
