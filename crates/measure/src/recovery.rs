//! Recovery time of a device: RFC 2544, sections 26.5 and 26.6, and RFC 6201. Times are seconds of one clock.

/// Returns the recovery time after an overload (26.5): from the halving of the load to the sending time of the last
/// lost frame; 0 if none was lost after it.
pub fn recovery(halved: f64, last_lost: Option<f64>) -> f64 {
    last_lost.map_or(0.0, |lost| (lost - halved).max(0.0))
}

/// Returns the time of a reset, from the number of frames lost (RFC 6201, section 4.1.1).
pub fn reset_by_loss(lost: u64, load: f64) -> f64 {
    lost as f64 / load
}

/// Returns the time of a reset, from the last frame before and the first one after it (RFC 6201, section 4.1.2).
pub fn reset_by_times(last_before: f64, first_after: f64) -> f64 {
    (first_after - last_before).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_sections() {
        assert_eq!((recovery(10.0, Some(10.5)), recovery(10.0, Some(9.0)), recovery(10.0, None)), (0.5, 0.0, 0.0));
        assert_eq!((reset_by_loss(3000, 1000.0), reset_by_times(5.0, 8.25)), (3.0, 3.25));
    }
}
