//! One kind of picture: groups of bars that lie on a logarithmic scale, as SVG. Knows nothing of what they stand for.

use std::fmt::Write;

use crate::figures::shown;

/// A bar, and where it should reach to.
pub(super) struct Bar {
    pub(super) series: &'static str,
    pub(super) value: f64,
    pub(super) mark: Option<f64>,
}

/// Bars that belong together, one below the other.
pub(super) struct Group {
    pub(super) title: String,
    pub(super) bars: Vec<Bar>,
}

pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) groups: Vec<Group>,
}

const WIDTH: f64 = 900.0;
/// Where bars begin and end; before them is the title of their group, behind them a figure.
const LEFT: f64 = 290.0;
const RIGHT: f64 = 820.0;
const TOP: f64 = 64.0;
const BAR_HEIGHT: f64 = 14.0;
const GROUP_GAP: f64 = 8.0;
const BOTTOM: f64 = 34.0;
/// Told apart by those who see no colours, too.
const COLOURS: [&str; 3] = ["#0072b2", "#e69f00", "#999999"];

impl Chart {
    pub(super) fn svg(&self) -> String {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let height = TOP + bars as f64 * BAR_HEIGHT + self.groups.len() as f64 * GROUP_GAP + BOTTOM;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"12\" y=\"24\" font-size=\"16\">{}</text>\n",
            escaped(self.title)
        );
        let series = self.series();
        self.legend(&series, &mut svg);
        let scale = self.scale();
        scale.grid(height - BOTTOM, &mut svg);
        let mut y = TOP;
        for group in &self.groups {
            let middle = y + group.bars.len() as f64 * BAR_HEIGHT / 2.0 + 4.0;
            let x = LEFT - 8.0;
            writeln!(svg, r#"<text x="{x}" y="{middle:.1}" text-anchor="end">{}</text>"#, escaped(&group.title))
                .unwrap();
            for bar in &group.bars {
                let at = series.iter().position(|series| *series == bar.series).unwrap_or_default();
                draw_bar(bar, COLOURS[at % COLOURS.len()], y, &scale, &mut svg);
                y += BAR_HEIGHT;
            }
            y += GROUP_GAP;
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The names of the series, in the order in which they come.
    fn series(&self) -> Vec<&'static str> {
        let mut series = Vec::new();
        for bar in self.groups.iter().flat_map(|group| &group.bars) {
            if !series.contains(&bar.series) {
                series.push(bar.series);
            }
        }
        series
    }

    fn legend(&self, series: &[&str], svg: &mut String) {
        let mut x = LEFT;
        for (name, colour) in series.iter().zip(COLOURS) {
            writeln!(svg, r#"<rect x="{x}" y="34" width="12" height="12" fill="{colour}"/>"#).unwrap();
            writeln!(svg, r#"<text x="{}" y="44">{}</text>"#, x + 18.0, escaped(name)).unwrap();
            x += 120.0;
        }
        if self.groups.iter().flat_map(|group| &group.bars).any(|bar| bar.mark.is_some()) {
            writeln!(svg, r##"<path d="M{x} 34V46" stroke="#d55e00" stroke-width="3"/>"##).unwrap();
            writeln!(svg, r#"<text x="{}" y="44">aim</text>"#, x + 8.0).unwrap();
        }
    }

    /// From a power of ten to a power of ten, around all there is.
    fn scale(&self) -> Scale {
        let all = self.groups.iter().flat_map(|group| &group.bars).flat_map(|bar| [Some(bar.value), bar.mark]);
        let exponents = all.flatten().filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = exponents.fold((f64::MAX, f64::MIN), |(low, high), e| (low.min(e), high.max(e)));
        let low = if low == f64::MAX { 0.0 } else { low.floor() };
        Scale { low, high: high.ceil().max(low + 1.0) }
    }
}

/// Exponents of ten at the ends.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        let share = (value.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low);
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn grid(&self, bottom: f64, svg: &mut String) {
        for exponent in self.low as i32..=self.high as i32 {
            let value = 10_f64.powi(exponent);
            let x = self.x(value);
            writeln!(svg, r##"<path d="M{x:.1} {TOP}V{bottom:.1}" stroke="#dddddd"/>"##).unwrap();
            let label = if exponent < 0 { format!("{value}") } else { shown(value) };
            let label = label.trim_end_matches(".0").trim_end_matches(".00");
            writeln!(svg, r#"<text x="{x:.1}" y="{}" text-anchor="middle">{label}</text>"#, bottom + 16.0).unwrap();
        }
    }
}

fn draw_bar(bar: &Bar, colour: &str, y: f64, scale: &Scale, svg: &mut String) {
    let (end, height) = (scale.x(bar.value), BAR_HEIGHT - 2.0);
    let length = (end - LEFT).max(1.0);
    writeln!(svg, r#"<rect x="{LEFT}" y="{y:.1}" width="{length:.1}" height="{height}" fill="{colour}"/>"#).unwrap();
    let mark_x = bar.mark.map(|mark| scale.x(mark));
    if let Some(x) = mark_x {
        writeln!(svg, r##"<path d="M{x:.1} {y:.1}v{height}" stroke="#d55e00" stroke-width="3"/>"##).unwrap();
    }
    let text_x = mark_x.map_or(end, |x| x.max(end)) + 5.0;
    writeln!(svg, r#"<text x="{text_x:.1}" y="{:.1}" font-size="11">{}</text>"#, y + 10.5, shown(bar.value)).unwrap();
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
