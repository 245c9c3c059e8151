//! Charts as SVG, in a report or as files, without scripts.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 280.0;
/// Margins around the axes: left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (78.0, 16.0, 14.0, 40.0);

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub name: &'static str,
    pub least: f64,
    pub greatest: f64,
    pub is_logarithmic: bool,
}

/// Drawing style of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrawStyle {
    Line,
    Dashes,
    Dots,
    Crosses,
}

/// Points of one series.
pub(crate) struct Series {
    pub name: String,
    pub draw: DrawStyle,
    /// Number of the colour.
    pub colour: usize,
    pub points: Vec<(f64, f64)>,
}

impl Axis {
    /// Returns an axis from 0.
    pub(crate) fn linear(name: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let greatest = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        Axis { name, least: 0.0, greatest: if greatest > 0.0 { greatest * 1.05 } else { 1.0 }, is_logarithmic: false }
    }

    /// Returns an axis of whole decades around the positive values.
    pub(crate) fn logarithmic(name: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let sound = values.filter(|value| value.is_finite() && *value > 0.0);
        let (least, greatest) =
            sound.fold((f64::INFINITY, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
        if greatest <= 0.0 {
            return Axis { name, least: 1.0, greatest: 10.0, is_logarithmic: true };
        }
        let least = 10f64.powf(least.log10().floor());
        let greatest = 10f64.powf(greatest.log10().ceil()).max(least * 10.0);
        Axis { name, least, greatest, is_logarithmic: true }
    }

    /// Returns the position of a value, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let Axis { least, greatest, .. } = *self;
        let place = match self.is_logarithmic {
            true => (value.max(least) / least).ln() / (greatest / least).ln(),
            false => (value - least) / (greatest - least),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns the values of the tick labels.
    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let decades = (self.greatest / self.least).log10().round() as i32;
            let step = (decades / 8 + 1) as usize;
            return (0..=decades).step_by(step).map(|decade| self.least * 10f64.powi(decade)).collect();
        }
        let rough = (self.greatest - self.least) / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..).map(|number| f64::from(number) * step).take_while(|value| *value <= self.greatest).take(12).collect()
    }
}

/// Returns a chart with a legend below, for a page that defines the colours.
pub(crate) fn picture(title: &str, across: Axis, up: Axis, series: &[Series]) -> String {
    let begin = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", plain_html(title));
    let mut text = format!("<figure>{begin}{}</svg><figcaption>", drawing(across, up, series));
    let _ = write!(text, "<strong>{}</strong>", plain_html(title));
    for one in series.iter().filter(|one| !one.name.is_empty()) {
        let sign = match one.draw {
            DrawStyle::Line => "\u{2501}",
            DrawStyle::Dashes => "\u{2505}",
            DrawStyle::Dots => "\u{25cf}",
            DrawStyle::Crosses => "\u{00d7}",
        };
        let _ = write!(text, " <span class=\"c{}\">{sign}</span> {}", one.colour % 6, plain_html(&one.name));
    }
    text + "</figcaption></figure>\n"
}

/// Returns the chart as a separate file, with a legend.
pub(crate) fn svg(title: &str, across: Axis, up: Axis, series: &[Series]) -> String {
    const COLOURS: [&str; 6] = ["#1f5fa8", "#b3541e", "#2e7d4f", "#7b4fa3", "#a8324a", "#5f6b76"];
    const LINE: f64 = 18.0;
    let named: Vec<&Series> = series.iter().filter(|one| !one.name.is_empty()).collect();
    let height = HEIGHT + LINE * (named.len() + 1) as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n<style>\
         svg{{background:#fff;font:12px sans-serif}}.grid{{stroke:#ddd;fill:none}}.tick{{fill:#555;font-size:11px}}\
         .line{{fill:none;stroke-width:1.8}}.dash{{stroke-dasharray:6 4}}"
    );
    for (number, colour) in COLOURS.iter().enumerate() {
        let _ = write!(text, ".c{number}{{stroke:{colour};fill:{colour}}}");
    }
    text += "path.line{fill:none}text{stroke:none}</style>\n";
    text += &drawing(across, up, series);
    let _ = write!(text, "\n<text x=\"12\" y=\"{:.1}\">{}</text>", HEIGHT + 12.0, plain_html(title));
    for (place, one) in named.iter().enumerate() {
        let y = HEIGHT + 12.0 + LINE * (place + 1) as f64;
        let (colour, name) = (one.colour % 6, plain_html(&one.name));
        let _ = write!(text, "\n<path class=\"line c{colour}\" d=\"M12 {:.1}h24\"/>", y - 4.0);
        let _ = write!(text, "<text x=\"42\" y=\"{y:.1}\">{name}</text>");
    }
    text + "\n</svg>\n"
}

/// Escapes text for HTML and SVG.
pub(crate) fn plain_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Axes and series.
fn drawing(across: Axis, up: Axis, series: &[Series]) -> String {
    let (left, right, top, bottom) = MARGIN;
    let x = |value: f64| left + across.place(value) * (WIDTH - left - right);
    let y = |value: f64| HEIGHT - bottom - up.place(value) * (HEIGHT - top - bottom);
    let mut text = String::new();
    for tick in up.ticks() {
        let at = y(tick);
        let _ = write!(
            text,
            "<path class=\"grid\" d=\"M{left} {at:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - right,
            left - 6.0,
            at + 4.0,
            short(tick)
        );
    }
    for tick in across.ticks() {
        let at = x(tick);
        let _ = write!(
            text,
            "<path class=\"grid\" d=\"M{at:.1} {top}V{:.1}\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - bottom,
            HEIGHT - bottom + 15.0,
            short(tick)
        );
    }
    let _ = write!(
        text,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <text class=\"tick\" transform=\"translate(12 {:.1}) rotate(-90)\" text-anchor=\"end\">{}</text>",
        WIDTH - right,
        HEIGHT - 6.0,
        across.name,
        top,
        up.name
    );
    for one in series {
        draw(&mut text, one, x, y);
    }
    text
}

fn draw(text: &mut String, series: &Series, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) {
    let colour = series.colour % 6;
    let points = series.points.iter().filter(|(one, other)| one.is_finite() && other.is_finite());
    match series.draw {
        DrawStyle::Line | DrawStyle::Dashes => {
            let dashes = if series.draw == DrawStyle::Dashes { " dash" } else { "" };
            let path: Vec<String> = points.map(|(one, other)| format!("{:.1} {:.1}", x(*one), y(*other))).collect();
            if let [(one, other)] = series.points[..] {
                let _ =
                    write!(text, "<circle class=\"c{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"/>", x(one), y(other));
            } else if !path.is_empty() {
                let _ = write!(text, "<path class=\"line c{colour}{dashes}\" d=\"M{}\"/>", path.join("L"));
            }
        }
        DrawStyle::Dots => {
            for (one, other) in points {
                let _ = write!(
                    text,
                    "<circle class=\"c{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"/>",
                    x(*one),
                    y(*other)
                );
            }
        }
        DrawStyle::Crosses => {
            for (one, other) in points {
                let (x, y) = (x(*one), y(*other));
                let _ =
                    write!(text, "<path class=\"line c{colour}\" d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\"/>", x - 4.0, y - 4.0);
            }
        }
    }
}

/// Formats a number in short form.
fn short(value: f64) -> String {
    let digits = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 1e-3 => format!("{value:.0e}"),
        large if large >= 1e9 => format!("{} G", digits(value / 1e9)),
        large if large >= 1e6 => format!("{} M", digits(value / 1e6)),
        large if large >= 1e4 => format!("{} k", digits(value / 1e3)),
        _ => digits(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_values_are_within_the_chart() {
        let values = [0.0, 1e-9, 3.0, 1e12, f64::NAN, f64::INFINITY];
        for across in [Axis::linear("x", values.into_iter()), Axis::logarithmic("x", values.into_iter())] {
            for value in values {
                assert!((0.0..=1.0).contains(&across.place(value)), "{value} on {across:?}");
            }
            assert!((2..=13).contains(&across.ticks().len()), "{:?}", across.ticks());
            let points = values.iter().map(|value| (*value, *value)).collect();
            let series = [Series { name: "<b>".into(), draw: DrawStyle::Dots, colour: 0, points }];
            let text = picture("a <picture>", across, across, &series);
            assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("<b>"), "{text}");
        }
        assert!(Axis::linear("x", std::iter::empty()).greatest > 0.0);
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.5, 64.0, 1518.0, 9766.0, 14_880_952.0, 1e-5, 2.5e9].map(short);
        assert_eq!(shown, ["0", "0.5", "64", "1518", "9766", "14.881 M", "1e-5", "2.5 G"]);
    }
}
