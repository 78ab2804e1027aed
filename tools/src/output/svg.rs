//! Charts with logarithmic axes, as panels side by side, lines labeled where they end.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::system::bytes::Bytes;

const WIDTH: f64 = 1120.0;
/// Between the chart's edge and its contents, and between panels.
const MARGIN: f64 = 24.0;
/// The height of a panel's plotted area.
const HEIGHT: f64 = 250.0;
/// Above that area, for the panel's title; below it, for the sizes.
const ABOVE: f64 = 54.0;
const BELOW: f64 = 58.0;
/// On its left, for the values.
const LEFT: f64 = 66.0;
const TITLE: f64 = 22.0;
const TEXT: f64 = 14.0;
/// Width of a character of average width, per font size.
const CHARACTER: f64 = 0.54;
/// Between the end of the area and the labels.
const LEADER: f64 = 18.0;
/// Between the baselines of two labels, and of two lines of facts.
const LINE: f64 = 18.0;
/// Fewest pixels between two sizes of the horizontal axis.
const BETWEEN_SIZES: f64 = 52.0;
/// Lines of fewer points show each.
const MARKED: usize = 12;
/// Ranges are drawn up to this many times the largest value, and down to that part of the smallest. So one outlier
/// does not flatten all lines.
const BEYOND: f64 = 3.0;

/// Most labels of a vertical axis, powers of ten excepted.
const MOST_VALUES: usize = 7;

/// Each is readable as text on white. The first four are distinguishable with any color blindness.
const COLORS: [&str; 10] =
    ["#0067a5", "#c24e00", "#2b2b2b", "#7300e6", "#00806a", "#b0307a", "#806000", "#4a6fe3", "#a52a2a", "#4f7a1f"];
const GRAY: &str = "#6b6b6b";

#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// The subject of the measurement, and its conditions, below the title.
    pub(crate) facts: Vec<String>,
    /// How to read the chart; at its bottom.
    pub(crate) notes: Vec<String>,
    /// The measure of the sizes.
    pub(crate) sizes: &'static str,
    /// Panels in a row.
    pub(crate) columns: usize,
    /// Panels of the same unit have the same scale.
    pub(crate) is_comparable: bool,
    pub(crate) panels: Vec<Panel>,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// The unit of the values, `s` or `B/s`.
    pub(crate) unit: &'static str,
    pub(crate) curves: Vec<Curve>,
    pub(crate) ceiling: Option<Ceiling>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pub(crate) label: String,
    pub(crate) style: Style,
    /// At least one.
    pub(crate) points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Style {
    /// In the color of this number.
    Solid(usize),
    Dashed(usize),
    /// Not measured, but a limit, or the expectation of a model.
    Reference,
}

/// A value at a size, and its range. All are above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Bytes.
    pub(crate) size: f64,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// A value that nothing exceeds for long.
#[derive(Clone, Debug)]
pub(crate) struct Ceiling {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// The meaning of values above it.
    pub(crate) above: &'static str,
}

impl Style {
    fn color(self) -> &'static str {
        match self {
            Style::Solid(number) | Style::Dashed(number) => COLORS[number % COLORS.len()],
            Style::Reference => GRAY,
        }
    }

    /// Attributes of its line.
    fn stroke(self) -> String {
        let dashes = match self {
            Style::Solid(_) => r#"stroke-width="2.5""#,
            Style::Dashed(_) => r#"stroke-width="2.5" stroke-dasharray="9 4""#,
            Style::Reference => r#"stroke-width="1.5" stroke-dasharray="2 4""#,
        };
        format!(r#"fill="none" stroke="{}" stroke-linejoin="round" {dashes}"#, self.color())
    }
}

impl Chart {
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        ensure!(!self.drawn().is_empty(), "{}: there is nothing to draw", file.display());
        fs::write(file, self.svg()).with_context(|| format!("writing {}", file.display()))
    }

    /// The panels with curves, since others have no axes.
    fn drawn(&self) -> Vec<&Panel> {
        self.panels.iter().filter(|panel| !panel.curves.is_empty()).collect()
    }

    pub(crate) fn svg(&self) -> String {
        let panels = self.drawn();
        let facts = wrapped(&self.facts, " · ");
        let notes = wrapped(&self.notes, " ");
        let top = MARGIN + TITLE + LINE * facts.len() as f64 + 12.0;
        let rows = panels.len().div_ceil(self.columns) as f64;
        let bottom = top + rows * (ABOVE + HEIGHT + BELOW);
        let height = bottom + LINE * notes.len() as f64 + MARGIN;
        let title = escaped(&self.title);
        let description = escaped(&self.description());
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"title desc\" font-size=\"{TEXT}\" \
             font-family=\"Helvetica, Arial, Liberation Sans, sans-serif\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"desc\">{description}</desc>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        let y = MARGIN + TITLE * 0.8;
        text(&mut svg, (MARGIN, y), &format!(r#"font-size="{TITLE}" font-weight="bold""#), &self.title);
        for (lines, y) in [(&facts, y + 4.0), (&notes, bottom)] {
            for (i, line) in lines.iter().enumerate() {
                let place = (MARGIN, y + LINE * (i + 1) as f64);
                text(&mut svg, place, &format!(r#"fill="{GRAY}""#), line);
            }
        }
        let width = (WIDTH - MARGIN) / self.columns as f64;
        // The same for all, so that those below each other have their sizes below each other.
        let labels = panels.iter().flat_map(|panel| panel.labels()).map(|label| self::width(label));
        let labels = (labels.fold(0.0, f64::max) + LEADER).min(width * 0.4);
        for (i, &panel) in panels.iter().enumerate() {
            let mut values = panel.values();
            for other in &panels {
                if self.is_comparable && other.unit == panel.unit {
                    values.include(other.values().low);
                    values.include(other.values().high);
                }
            }
            let left = MARGIN + width * (i % self.columns) as f64;
            let top = top + (ABOVE + HEIGHT + BELOW) * (i / self.columns) as f64;
            let plotted = width - MARGIN - LEFT - labels;
            panel.draw(&mut svg, self.sizes, panel.frame((left + LEFT, top + ABOVE), plotted, values));
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The chart in words, with both ends of each curve.
    fn description(&self) -> String {
        let mut words = self.facts.join(", ");
        for panel in self.drawn() {
            let mut curves = Vec::new();
            for Curve { label, points, .. } in &panel.curves {
                let ends = [&points[0], &points[points.len() - 1]];
                let [first, last] =
                    ends.map(|end| format!("{} at {}", quantity(end.value, panel.unit), bytes(end.size)));
                curves.push(format!("{label} from {first} to {last}"));
            }
            let _ = write!(words, ". {}: {}", panel.title, curves.join("; "));
        }
        words
    }
}

/// A panel's plotted area, and what its edges stand for.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    /// Logarithms of the smallest and of the largest size and value.
    sizes: (f64, f64),
    values: (f64, f64),
}

impl Frame {
    fn x(&self, size: f64) -> f64 {
        let (first, last) = self.sizes;
        self.left + self.width * (size.log2() - first) / (last - first)
    }

    /// At an edge for values beyond it.
    fn y(&self, value: f64) -> f64 {
        let (first, last) = self.values;
        self.top + HEIGHT * ((last - value.log10()) / (last - first)).clamp(0.0, 1.0)
    }

    fn place(&self, point: &Point) -> (f64, f64) {
        (self.x(point.size), self.y(point.value))
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }

    fn bottom(&self) -> f64 {
        self.top + HEIGHT
    }

    /// The points of a line through some values.
    fn line(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let places = points.map(|(size, value)| format!("{:.1},{:.1}", self.x(size), self.y(value)));
        places.collect::<Vec<_>>().join(" ")
    }
}

impl Panel {
    fn labels(&self) -> impl Iterator<Item = &String> {
        let curves = self.curves.iter().map(|curve| &curve.label);
        curves.chain(self.ceiling.iter().map(|ceiling| &ceiling.label))
    }

    fn draw(&self, svg: &mut String, sizes: &str, frame: Frame) {
        let place = (frame.left - LEFT, frame.top - 26.0);
        text(svg, place, r#"font-size="16" font-weight="bold""#, &self.title);
        self.draw_ceiling(svg, &frame);
        self.draw_axes(svg, &frame, sizes);
        // Where they overlap, curves must stay visible.
        let opacity = (0.5 / self.curves.len() as f64).min(0.16);
        for Curve { style, points, .. } in &self.curves {
            let high = points.iter().map(|point| (point.size, point.high));
            let low = points.iter().rev().map(|point| (point.size, point.low));
            if points.iter().any(|point| point.low < point.high) {
                let (color, band) = (style.color(), frame.line(high.chain(low)));
                // The band of one point has no width of its own.
                let width = if points.len() == 1 { 8 } else { 0 };
                let _ = writeln!(
                    svg,
                    r#"<polygon points="{band}" fill="{color}" stroke="{color}" stroke-width="{width}" opacity="{opacity:.2}"/>"#
                );
            }
        }
        // The first one on top.
        for curve in self.curves.iter().rev() {
            let style = curve.style;
            let label = escaped(&curve.label);
            let line = frame.line(curve.points.iter().map(|point| (point.size, point.value)));
            let _ = writeln!(svg, r#"<g><title>{label}, {}</title>"#, escaped(&self.title));
            if curve.points.len() < MARKED && style != Style::Reference {
                let color = style.color();
                for point in &curve.points {
                    let (x, y) = frame.place(point);
                    let _ = write!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" fill="{color}"/>"#);
                }
            }
            let _ = writeln!(svg, r#"<polyline points="{line}" {}/></g>"#, style.stroke());
        }
        self.draw_labels(svg, &frame);
    }

    /// The smallest and the largest value to draw.
    fn values(&self) -> Bounds {
        let mut medians = Bounds::default();
        let mut ranges = Bounds::default();
        for point in self.curves.iter().flat_map(|curve| &curve.points) {
            medians.include(point.value);
            ranges.include(point.low);
            ranges.include(point.high);
        }
        let low = ranges.low.max(medians.low / BEYOND);
        let mut high = ranges.high.min(medians.high * BEYOND);
        if let Some(ceiling) = &self.ceiling {
            high = high.max(ceiling.value * 2.0);
        }
        Bounds { low, high }
    }

    /// The area for these values, with some room.
    fn frame(&self, (left, top): (f64, f64), width: f64, values: Bounds) -> Frame {
        let mut sizes = Bounds::default();
        for point in self.curves.iter().flat_map(|curve| &curve.points) {
            sizes.include(point.size);
        }
        let smallest = sizes.low.log2();
        let largest = sizes.high.log2();
        let low = values.low.log10();
        let high = values.high.log10();
        // At least 0.8 in all, in which there are values to label.
        let room = (0.04 * (high - low)).max(0.4 - (high - low) / 2.0);
        Frame {
            left,
            top,
            width,
            sizes: if smallest < largest { (smallest, largest) } else { (smallest - 1.0, smallest + 1.0) },
            values: (low - room, high + room),
        }
    }

    fn draw_ceiling(&self, svg: &mut String, frame: &Frame) {
        let Some(Ceiling { value, above, .. }) = self.ceiling else {
            return;
        };
        let Frame { left: x, width, top, .. } = *frame;
        let y = frame.y(value);
        let height = y - top;
        let stroke = Style::Reference.stroke();
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#f0f0f0\"/>\n\
             <path d=\"M{x:.1} {y:.1}h{width:.1}\" {stroke}/>"
        );
        let attributes = format!(r#"text-anchor="end" font-size="13" fill="{GRAY}""#);
        text(svg, (frame.right(), top - 5.0), &attributes, above);
    }

    fn draw_axes(&self, svg: &mut String, frame: &Frame, sizes: &str) {
        let left = frame.left;
        let right = frame.right();
        let bottom = frame.bottom();
        let mut grid = String::new();
        let mut axis = format!("M{left:.1} {bottom:.1}H{right:.1}");
        for value in ticks(frame.values) {
            let y = frame.y(value);
            let _ = write!(grid, "M{left:.1} {y:.1}H{right:.1}");
            let place = (left - 8.0, y + TEXT * 0.35);
            text(svg, place, r#"text-anchor="end" font-size="13""#, &quantity(value, self.unit));
        }
        let (first, last) = frame.sizes;
        let mut step = 1.0;
        while frame.width / (last - first) * step < BETWEEN_SIZES {
            step *= 2.0;
        }
        let mut power = (first / step).ceil() * step;
        while power <= last {
            let x = frame.x(power.exp2());
            let _ = write!(axis, "M{x:.1} {bottom:.1}v5");
            let place = (x, bottom + 20.0);
            text(svg, place, r#"text-anchor="middle" font-size="13""#, &bytes(power.exp2()));
            power += step;
        }
        let attributes = format!(r#"text-anchor="middle" font-size="13" fill="{GRAY}""#);
        text(svg, ((left + right) / 2.0, bottom + 40.0), &attributes, sizes);
        let _ = writeln!(
            svg,
            "<path d=\"{grid}\" stroke=\"#dcdcdc\"/>\n<path d=\"{axis}\" stroke=\"#444\" fill=\"none\"/>"
        );
    }

    /// Labels beside the ends of lines that end early, if there is room. The others are right of the area, each at the
    /// height where its line ends, or as near as others allow.
    fn draw_labels(&self, svg: &mut String, frame: &Frame) {
        let right = frame.right();
        let mut taken = self.places(frame);
        let mut labels = Vec::new();
        for Curve { label, style, points } in &self.curves {
            let Some(end) = points.last() else {
                continue;
            };
            let (x, y) = frame.place(end);
            let color = style.color();
            let Some(place) = beside(label, (x, y), frame, &taken) else {
                labels.push((y, x, label, color));
                continue;
            };
            text(svg, place, &format!(r#"fill="{color}""#), label);
            // Other labels keep off its line of text.
            taken.extend((0..20).map(|i| (place.0 + width(label) * f64::from(i) / 19.0, place.1 - 4.0)));
        }
        if let Some(ceiling) = &self.ceiling {
            labels.push((frame.y(ceiling.value), right, &ceiling.label, GRAY));
        }
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<_> = labels.iter().map(|label| label.0).collect();
        let places = spread(&wanted, (frame.top, frame.bottom()));
        for ((end, x, label, color), y) in labels.into_iter().zip(places) {
            let _ = writeln!(
                svg,
                r#"<path d="M{x:.1} {end:.1}H{right:.1}L{:.1} {y:.1}h4" fill="none" stroke="{color}" opacity="0.55"/>"#,
                right + LEADER - 8.0
            );
            let attributes = format!(r#"fill="{color}""#);
            text(svg, (right + LEADER, y + TEXT * 0.35), &attributes, label);
        }
    }

    /// Places on all lines, close enough to each other that no label fits between two.
    fn places(&self, frame: &Frame) -> Vec<(f64, f64)> {
        let mut places = Vec::new();
        for curve in &self.curves {
            for pair in curve.points.windows(2) {
                let (x, y) = frame.place(&pair[0]);
                let (to_x, to_y) = frame.place(&pair[1]);
                let steps = ((to_x - x).abs().max((to_y - y).abs()) / 4.0).ceil();
                places.extend((0..=steps as u32).map(|step| {
                    let part = f64::from(step) / steps.max(1.0);
                    (x + (to_x - x) * part, y + (to_y - y) * part)
                }));
            }
        }
        places
    }
}

/// Where a label fits beside the end of a line, away from what is taken; nowhere if the line ends at the right edge.
fn beside(label: &str, (x, y): (f64, f64), frame: &Frame, taken: &[(f64, f64)]) -> Option<(f64, f64)> {
    if x > frame.right() - 1.0 {
        return None;
    }
    let width = width(label);
    // To the right; left and right above; right and left below.
    let places =
        [(x + 8.0, y + 5.0), (x - width, y - 9.0), (x + 4.0, y - 9.0), (x + 4.0, y + 18.0), (x - width, y + 18.0)];
    for (left, baseline) in places {
        let columns = left..=left + width;
        let rows = baseline - TEXT..=baseline + 4.0;
        let is_inside = left >= frame.left
            && *columns.end() <= frame.right()
            && *rows.start() >= frame.top
            && *rows.end() <= frame.bottom();
        if is_inside && !taken.iter().any(|(x, y)| columns.contains(x) && rows.contains(y)) {
            return Some((left, baseline));
        }
    }
    None
}

/// The width of a text, at most.
fn width(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT * CHARACTER
}

/// The smallest and the largest of some values above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounds {
    low: f64,
    high: f64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { low: f64::INFINITY, high: f64::MIN_POSITIVE }
    }
}

impl Bounds {
    fn include(&mut self, value: f64) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
    }
}

/// Places of labels, at least a line apart and inside the bounds, as near to the wanted ones, which ascend, as possible.
fn spread(wanted: &[f64], (top, bottom): (f64, f64)) -> Vec<f64> {
    let gap = LINE.min((bottom - top) / wanted.len() as f64);
    // Groups that touch each other, as their number, and the place of the first if each stood by itself.
    let mut groups: Vec<(usize, f64)> = Vec::new();
    for (i, &wanted) in wanted.iter().enumerate() {
        let mut group = (1, wanted - gap * i as f64);
        while let Some((count, start)) = groups.pop_if(|before| before.1 > group.1) {
            let sum = start * count as f64 + group.1 * group.0 as f64;
            group = (count + group.0, sum / (count + group.0) as f64);
        }
        groups.push(group);
    }
    let last = bottom - gap * wanted.len().saturating_sub(1) as f64;
    let starts = groups.into_iter().flat_map(|(count, start)| std::iter::repeat_n(start, count));
    starts.enumerate().map(|(i, start)| start.clamp(top, last) + gap * i as f64).collect()
}

/// Values to label between two logarithms, which are powers of ten, and between them some of their multiples, if the
/// labels are few.
fn ticks((first, last): (f64, f64)) -> Vec<f64> {
    let mut ticks = Vec::new();
    // The last ones are taken in any number.
    let dense: [&[f64]; 4] = [&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
    for factors in dense {
        ticks.clear();
        for power in first.floor() as i32..=last.ceil() as i32 {
            ticks.extend(factors.iter().map(|factor| factor * 10f64.powi(power)));
        }
        ticks.retain(|value| (first..=last).contains(&value.log10()));
        if ticks.len() <= MOST_VALUES {
            break;
        }
    }
    ticks
}

/// A value with its unit and the prefix that fits.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 8] =
        [(1e-12, "p"), (1e-9, "n"), (1e-6, "µ"), (1e-3, "m"), (1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")];
    // Powers of ten are not exact.
    let fitting = PREFIXES.iter().rev().find(|(scale, _)| value >= scale * 0.9999);
    let (scale, prefix) = fitting.unwrap_or(&PREFIXES[0]);
    let number = value / scale;
    let decimals = if number.round() >= 10.0 || (number - number.round()).abs() < 0.01 { 0 } else { 1 };
    format!("{number:.decimals$} {prefix}{unit}")
}

fn bytes(size: f64) -> String {
    Bytes(size as usize).to_string()
}

/// Texts in lines that fit the chart.
fn wrapped(texts: &[String], between: &str) -> Vec<String> {
    let longest = ((WIDTH - 2.0 * MARGIN) / (TEXT * CHARACTER)) as usize;
    let mut lines: Vec<String> = Vec::new();
    for text in texts {
        match lines.last_mut() {
            Some(line) if format!("{line}{between}{text}").chars().count() <= longest => {
                let _ = write!(line, "{between}{text}");
            }
            _ => lines.push(text.clone()),
        }
    }
    lines
}

fn text(svg: &mut String, (x, y): (f64, f64), attributes: &str, text: &str) {
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" {attributes}>{}</text>"#, escaped(text));
}

/// Text without the characters that XML uses itself.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(label: &str, style: Style, values: &[f64]) -> Curve {
        let point = |(power, &value)| {
            let size = f64::powi(2.0, power * 4);
            Point { size, value, low: value / 2.0, high: value * 2.0 }
        };
        let points = (0..).zip(values).map(point).collect();
        Curve { label: label.into(), style, points }
    }

    fn chart(curves: Vec<Curve>) -> Chart {
        Chart {
            title: "A <GPU> & more".into(),
            facts: vec!["a fact".into()],
            notes: vec!["a note".into()],
            sizes: "size",
            columns: 1,
            is_comparable: false,
            panels: vec![Panel {
                title: "Writes".into(),
                unit: "B/s",
                curves,
                ceiling: Some(Ceiling { label: "bus".into(), value: 63e9, above: "burst" }),
            }],
        }
    }

    #[test]
    fn chart_has_all_texts_and_describes_itself() {
        let svg = chart(vec![curve("a&b", Style::Solid(0), &[1e3, 1e9])]).svg();
        for text in [
            "<title id=\"title\">A &lt;GPU&gt; &amp; more</title>",
            "a fact. Writes: a&amp;b from 1 kB/s at 1 B to 1 GB/s at 16 B</desc>",
            "<title>a&amp;b, Writes</title>",
            ">a note<",
            ">bus<",
            ">burst<",
            ">100 MB/s<",
            ">4 B<",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn everything_is_inside_the_area() {
        let curves = vec![curve("a", Style::Solid(0), &[1e3, 1e9]), curve("b", Style::Reference, &[5e2])];
        let panel = &chart(curves.clone()).panels[0];
        let frame = panel.frame((50.0, 20.0), 300.0, panel.values());
        for point in curves.iter().flat_map(|curve| &curve.points) {
            assert!((50.0..=350.0).contains(&frame.x(point.size)), "{point:?}");
            for value in [point.low, point.value, point.high, 63e9] {
                assert!((20.0..=20.0 + HEIGHT).contains(&frame.y(value)), "{value}");
            }
        }
    }

    #[test]
    fn equal_values_have_an_axis_with_labels() {
        let point = Point { size: 1.0, value: 6.1e10, low: 6.0e10, high: 6.2e10 };
        let curve = Curve { label: "a".into(), style: Style::Solid(0), points: vec![point] };
        let panel = Panel { ceiling: None, ..chart(vec![curve]).panels[0].clone() };
        let labels = ticks(panel.frame((0.0, 0.0), 300.0, panel.values()).values);
        assert!(labels.len() >= 2, "{labels:?}");
    }

    #[test]
    fn outlier_is_cut_off_and_comparable_panels_have_one_scale() {
        let mut outlier = curve("a", Style::Solid(0), &[1.0, 2.0]);
        outlier.points[1].high = 1e6;
        let mut panel = Panel { ceiling: None, curves: vec![outlier], ..chart(Vec::new()).panels[0].clone() };
        assert_eq!(panel.values(), Bounds { low: 0.5, high: 6.0 });
        let frame = panel.frame((0.0, 0.0), 300.0, panel.values());
        assert_eq!(frame.y(1e6), frame.top);

        let mut both = Chart { panels: vec![panel.clone()], ..chart(Vec::new()) };
        panel.curves = vec![curve("b", Style::Solid(0), &[1e9])];
        both.panels.push(panel);
        let labels = |chart: &Chart| chart.svg().matches(">1 B/s<").count();
        assert_eq!(labels(&both), 1);
        both.is_comparable = true;
        assert_eq!(labels(&both), 2);
    }

    #[test]
    fn label_of_a_line_that_ends_early_is_beside_its_end() {
        let curves =
            [curve("long", Style::Solid(0), &[1e3, 1e3, 1e3, 1e3]), curve("short", Style::Solid(1), &[1e6, 1e6])];
        let panel = Panel { ceiling: None, curves: curves.into(), ..chart(Vec::new()).panels[0].clone() };
        let frame = panel.frame((0.0, 0.0), 300.0, panel.values());
        let end = frame.place(&panel.curves[1].points[1]);
        let taken = panel.places(&frame);
        assert_eq!(beside("short", end, &frame, &taken), Some((end.0 + 8.0, end.1 + 5.0)));
        let blocked = [taken, vec![(end.0 + 20.0, end.1)]].concat();
        assert_eq!(beside("short", end, &frame, &blocked), Some((end.0 - width("short"), end.1 - 9.0)));
        assert_eq!(beside("long", (frame.right(), end.1), &frame, &[]), None);
    }

    #[test]
    fn labels_are_a_line_apart_and_near_their_ends() {
        let bounds = (0.0, 300.0);
        assert_eq!(spread(&[10.0, 100.0], bounds), [10.0, 100.0]);
        assert_eq!(spread(&[100.0, 100.0, 100.0], bounds), [100.0 - LINE, 100.0, 100.0 + LINE]);
        assert_eq!(spread(&[0.0, 1.0], bounds), [0.0, LINE]);
        assert_eq!(spread(&[299.0, 300.0], bounds), [300.0 - LINE, 300.0]);
        let many = spread(&[150.0; 30], bounds);
        assert!(many.windows(2).all(|pair| pair[1] - pair[0] == 10.0), "{many:?}");
    }

    #[test]
    fn values_have_few_labels() {
        assert_eq!(ticks((2.9, 7.1)), [1e3, 1e4, 1e5, 1e6, 1e7]);
        assert_eq!(ticks((0.0, 1.0)), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(ticks((-9.0, 3.0)).len(), 13);
    }

    #[test]
    fn quantities_have_the_prefix_that_fits() {
        let texts = [1e-9, 2.34e-9, 1.5e-6, 1e-4, 0.1 + 0.2].map(|value| quantity(value, "s"));
        assert_eq!(texts, ["1 ns", "2.3 ns", "1.5 µs", "100 µs", "300 ms"]);
        assert_eq!(quantity(1e9, "B/s"), "1 GB/s");
    }

    #[test]
    fn panels_without_curves_are_left_out() {
        let mut chart = chart(Vec::new());
        let refused = chart.write(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(refused.contains("nothing to draw"), "{refused}");
        let curves = vec![curve("a", Style::Solid(0), &[1e3])];
        chart.panels.push(Panel { title: "Reads".into(), curves, ..chart.panels[0].clone() });
        assert_eq!(chart.drawn().len(), 1);
        assert!(chart.svg().contains(">Reads<"));
    }
}
