//! Pictures of lines over sizes, in panels with logarithmic axes.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Error, Result, bail, ensure};
use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, IntoLogRange};
use plotters::prelude::*;

use super::table::quantity;
use crate::system::bytes::Bytes;

const COLUMNS: usize = 2;
const WIDTH: u32 = 1120;
const MARGIN: i32 = 24;
const PANEL: i32 = 320;
const LINE: i32 = 20;
const FONT: &str = "Helvetica, Arial, Liberation Sans, sans-serif";
/// Characters of a line of facts.
const LONGEST: usize = 145;
/// Lines of fewer points show each.
const MARKED: usize = 12;
/// Ranges are drawn up to this many times the largest value, and down to that part of the smallest. So one outlier
/// does not flatten all lines.
const BEYOND: f64 = 3.0;

/// The first four are distinguishable with any color blindness.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 103, 165),
    RGBColor(194, 78, 0),
    RGBColor(43, 43, 43),
    RGBColor(115, 0, 230),
    RGBColor(0, 128, 106),
    RGBColor(176, 48, 122),
    RGBColor(128, 96, 0),
    RGBColor(74, 111, 227),
];
const GRAY: RGBColor = RGBColor(107, 107, 107);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(crate) title: String,
    /// The subject of the measurement, its conditions, and how to read the picture; below the title.
    pub(crate) facts: Vec<String>,
    pub(crate) panels: Vec<Panel>,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// The unit of the values, `s` or `B/s`.
    pub(crate) unit: &'static str,
    pub(crate) curves: Vec<Curve>,
}

/// At least one point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pub(crate) label: String,
    /// The number of its color; none if it was not measured, but is a limit.
    pub(crate) color: Option<usize>,
    pub(crate) points: Vec<Point>,
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

impl Picture {
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        ensure!(!self.panels.is_empty(), "{}: there is nothing to draw", file.display());
        fs::write(file, self.svg()?).with_context(|| format!("writing {}", file.display()))
    }

    pub(crate) fn svg(&self) -> Result<String> {
        let facts = wrapped(&self.facts);
        let rows = self.panels.len().div_ceil(COLUMNS);
        let height = MARGIN + LINE * (3 + facts.len() as i32) + PANEL * rows as i32;
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        self.draw(&area, &facts, rows).map_err(|error| Error::msg(error.to_string()))?;
        drop(area);
        let Some((start, rest)) = svg.split_once('>') else {
            bail!("plotters drew nothing");
        };
        let title = escaped(&self.title);
        let description = escaped(&self.description());
        // For screen readers, which plotters leaves out.
        Ok(format!(
            "{start} role=\"img\" aria-labelledby=\"title desc\">\n<title id=\"title\">{title}</title>\n\
             <desc id=\"desc\">{description}</desc>{rest}"
        ))
    }

    fn draw(&self, area: &Area, facts: &[String], rows: usize) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let title = (FONT, 28).into_font().style(FontStyle::Bold);
        area.draw(&Text::new(self.title.clone(), (MARGIN, MARGIN), title))?;
        let mut y = MARGIN + 32;
        for line in facts {
            area.draw(&Text::new(line.clone(), (MARGIN, y), (FONT, 17).into_font().color(&GRAY)))?;
            y += LINE;
        }
        self.draw_legend(area, y + LINE / 2)?;
        let panels = area.margin(y + LINE, 0, 0, MARGIN).split_evenly((rows, COLUMNS));
        for (panel, area) in self.panels.iter().zip(panels) {
            panel.draw(&area)?;
        }
        area.present()?;
        Ok(())
    }

    /// Names each curve once, in a line.
    fn draw_legend(&self, area: &Area, y: i32) -> Result<(), Box<dyn std::error::Error>> {
        let mut named: Vec<&str> = Vec::new();
        let mut x = MARGIN;
        for curve in self.panels.iter().flat_map(|panel| &panel.curves) {
            if named.contains(&&*curve.label) {
                continue;
            }
            named.push(&curve.label);
            area.draw(&PathElement::new([(x, y), (x + 24, y)], curve.style()))?;
            area.draw(&Text::new(curve.label.clone(), (x + 30, y - 8), (FONT, 18)))?;
            x += 60 + 8 * curve.label.chars().count() as i32;
        }
        Ok(())
    }

    /// The picture in words, with both ends of each curve.
    fn description(&self) -> String {
        let mut words = self.facts.join(", ");
        for panel in &self.panels {
            let _ = write!(words, ". {}", panel.title);
            for Curve { label, points, .. } in &panel.curves {
                let _ = write!(words, "; {label}");
                for (word, point) in [("from", &points[0]), ("to", &points[points.len() - 1])] {
                    let _ = write!(words, " {word} {} at {}", quantity(point.value, panel.unit), bytes(point.size));
                }
            }
        }
        words
    }
}

impl Curve {
    fn style(&self) -> ShapeStyle {
        match self.color {
            Some(number) => COLORS[number % COLORS.len()].stroke_width(2),
            None => GRAY.stroke_width(1),
        }
    }
}

impl Panel {
    fn draw(&self, area: &Area) -> Result<(), Box<dyn std::error::Error>> {
        let sizes = self.sizes();
        let values = self.values();
        let x = sizes.log_scale().base(2.0);
        let y = values.clone().log_scale().with_key_points(ticks(&values));
        let caption = (FONT, 20).into_font().style(FontStyle::Bold);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, caption)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(90)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(RGBColor(220, 220, 220))
            .label_style((FONT, 16))
            .x_labels(7)
            .x_label_formatter(&|size| bytes(*size))
            .y_label_formatter(&|value| quantity(*value, self.unit))
            .draw()?;
        for Curve { color, points, .. } in &self.curves {
            let Some(color) = color else {
                continue;
            };
            let mut outline: Vec<_> = points.iter().map(|point| (point.size, point.high.min(values.end))).collect();
            outline.extend(points.iter().rev().map(|point| (point.size, point.low.max(values.start))));
            // Where they overlap, curves must stay visible.
            let style = COLORS[color % COLORS.len()].mix(0.12);
            chart.draw_series([Polygon::new(outline, style)])?;
        }
        // The first one on top.
        for curve in self.curves.iter().rev() {
            let line: Vec<_> = curve.points.iter().map(|point| (point.size, point.value)).collect();
            let style = curve.style();
            if curve.color.is_some() && line.len() < MARKED {
                chart.draw_series(line.iter().map(|place| Circle::new(*place, 4, style.filled())))?;
            }
            chart.draw_series(LineSeries::new(line, style))?;
        }
        Ok(())
    }

    /// The smallest and the largest size, which differ.
    fn sizes(&self) -> Range<f64> {
        let mut smallest = f64::INFINITY;
        let mut largest: f64 = 0.0;
        for point in self.curves.iter().flat_map(|curve| &curve.points) {
            smallest = smallest.min(point.size);
            largest = largest.max(point.size);
        }
        smallest..largest.max(smallest * 2.0)
    }

    /// The values to draw, with some room, and at least a factor of 6, in which there are values to label.
    fn values(&self) -> Range<f64> {
        let mut low = f64::INFINITY;
        let mut high: f64 = 0.0;
        let points: Vec<_> = self.curves.iter().flat_map(|curve| &curve.points).collect();
        for point in &points {
            low = low.min(point.value);
            high = high.max(point.value);
        }
        let smallest = low / BEYOND;
        let largest = high * BEYOND;
        for point in &points {
            low = low.min(point.low.max(smallest));
            high = high.max(point.high.min(largest));
        }
        let room = (6.0 / (high / low)).sqrt().max(1.1);
        low / room..high * room
    }
}

/// Values to label, which are powers of ten, and between them some of their multiples, if the labels are few.
fn ticks(values: &Range<f64>) -> Vec<f64> {
    let dense = values.end / values.start < 200.0;
    let factors: &[f64] = if dense { &[1.0, 2.0, 3.0, 5.0] } else { &[1.0] };
    let mut ticks = Vec::new();
    for power in values.start.log10().floor() as i32..=values.end.log10().ceil() as i32 {
        for factor in factors {
            ticks.push(factor * 10f64.powi(power));
        }
    }
    ticks.retain(|value| values.contains(value));
    ticks
}

fn bytes(size: f64) -> String {
    Bytes(size as usize).to_string()
}

/// Facts in lines that fit the picture.
fn wrapped(facts: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for fact in facts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + fact.chars().count() < LONGEST => {
                let _ = write!(line, " · {fact}");
            }
            _ => lines.push(fact.clone()),
        }
    }
    lines
}

/// Text without the characters that XML uses itself.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(size: f64, value: f64) -> Point {
        Point { size, value, low: value / 2.0, high: value * 2.0 }
    }

    fn panel(points: Vec<Point>) -> Panel {
        let curve = Curve { label: "a&b".into(), color: Some(0), points };
        Panel { title: "write".into(), unit: "B/s", curves: vec![curve] }
    }

    #[test]
    fn picture_has_all_texts_and_describes_itself() {
        let panels = vec![panel(vec![point(1.0, 1e3), point(16.0, 1e9)])];
        let picture = Picture { title: "A <GPU> & more".into(), facts: vec!["a fact".into()], panels };
        let svg = picture.svg().unwrap();
        for text in [
            "<title id=\"title\">A &lt;GPU&gt; &amp; more</title>",
            "a fact. write; a&amp;b from 1 kB/s at 1 B to 1 GB/s at 16 B</desc>",
            "\na&amp;b\n",
            "\n100 MB/s\n",
            "\n4 B\n",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn outlier_is_cut_off_and_equal_values_have_an_axis_with_labels() {
        let mut outlier = panel(vec![point(1.0, 1.0), point(2.0, 2.0)]);
        outlier.curves[0].points[1].high = 1e6;
        let values = outlier.values();
        assert!((6.0..7.0).contains(&values.end) && values.start > 0.4, "{values:?}");
        let equal = Point { size: 1.0, value: 6.1e10, low: 6.1e10, high: 6.1e10 };
        let equal = panel(vec![equal]);
        assert!(ticks(&equal.values()).len() >= 2, "{:?}", equal.values());
        assert_eq!(equal.sizes(), 1.0..2.0);
    }

    #[test]
    fn axes_have_few_labels() {
        assert_eq!(ticks(&(800.0..1.2e7)), [1e3, 1e4, 1e5, 1e6, 1e7]);
        assert_eq!(ticks(&(1.0..11.0)), [1.0, 2.0, 3.0, 5.0, 10.0]);
    }

    #[test]
    fn picture_without_curves_is_refused() {
        let picture = Picture { title: String::new(), facts: Vec::new(), panels: Vec::new() };
        let refused = picture.write(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(refused.contains("nothing to draw"), "{refused}");
    }
}
