//! The curves of a ramp as one page that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! Invariants:
//! - every value that is drawn stands in the table below the curves, too; a point says it under the mouse;
//! - nothing on it was written by others: names of servers and topics are not told.

use std::fmt::Write;

use super::ramp::Step;
use crate::cli::table::Row;

/// Size of a drawing and the room around it, in its own units.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;
const MARGIN: f64 = 46.0;

/// Colours that differ in lightness too.
const COLOURS: [&str; 4] = ["#0b6e99", "#d9730d", "#6940a5", "#8a8a3c"];

const STYLE: &str = "body{font:15px system-ui,sans-serif;margin:2rem auto;max-width:720px;color:#222}\
    h2{font-size:1rem;margin:1.5rem 0 .3rem}table{border-collapse:collapse;font-size:13px}\
    td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}\
    text{font:11px system-ui,sans-serif;fill:#555}";

/// A value over the rate of its step.
type Curve<'a> = (&'a str, fn(&Step) -> f64);

/// The page; `load` says what the load looked like.
pub(super) fn page(steps: &[Step], verdict: &str, load: &str) -> String {
    let shares: [Curve<'_>; 4] = [
        ("processors", |step| step.usage.processor_percent),
        ("memory", |step| step.usage.memory_percent),
        ("disk wait", |step| step.usage.disk_wait_percent),
        ("network", |step| step.usage.network_percent.unwrap_or_default()),
    ];
    // Where the kernel knows no speed there is no share of it.
    let is_speed_known = steps.iter().any(|step| step.usage.network_percent.is_some());
    let shares = if is_speed_known { &shares[..] } else { &shares[..3] };
    let drawings: [(&str, &[Curve<'_>]); 4] = [
        (
            "Stored messages a second",
            &[("stored", |step| float(step.stored)), ("due", |step| float(step.rate))],
        ),
        ("Latency in ms", &[("p50", |step| step.p50_ms), ("p99", |step| step.p99_ms)]),
        ("Shares in per cent", shares),
        (
            "Megabytes a second",
            &[
                ("disk", |step| step.usage.disk_bytes_per_second / 1e6),
                ("network", |step| step.usage.network_bytes_per_second / 1e6),
            ],
        ),
    ];
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Ramp</title><style>{STYLE}</style>\
         <h1>How much load is safe</h1><p><strong>{verdict}</strong></p><p>{load}</p>"
    );
    for (title, curves) in drawings {
        push(&mut page, format_args!("<h2>{title}</h2>{}", drawing(steps, curves)));
    }
    page.push_str("<h2>Every step</h2><table><tr>");
    for column in Step::COLUMNS {
        push(&mut page, format_args!("<th>{column}</th>"));
    }
    for step in steps {
        page.push_str("</tr><tr>");
        for cell in step.cells() {
            push(&mut page, format_args!("<td>{cell}</td>"));
        }
    }
    page.push_str("</tr></table></html>\n");
    page
}

fn push(page: &mut String, what: std::fmt::Arguments<'_>) {
    page.write_fmt(what).expect("a text takes what is written to it");
}

#[expect(clippy::cast_precision_loss, reason = "a point of a drawing is coarser than that")]
fn float(count: u64) -> f64 {
    count as f64
}

/// A value with few digits.
fn short(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{:.1}M", value / 1e6),
        _ if value >= 1e4 => format!("{:.0}k", value / 1e3),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

/// Curves over the rate, on a logarithmic axis: every step is as far from the next.
fn drawing(steps: &[Step], curves: &[Curve<'_>]) -> String {
    let rates: Vec<f64> = steps.iter().map(|step| float(step.rate).max(1.0).ln()).collect();
    let (first, last) = (rates.first().copied().unwrap_or(0.0), rates.last().copied().unwrap_or(1.0));
    let top = curves.iter().flat_map(|(_, value)| steps.iter().map(value)).fold(1e-9, f64::max);
    let x = |rate: f64| {
        MARGIN + (WIDTH - 2.0 * MARGIN) * if last > first { (rate - first) / (last - first) } else { 0.5 }
    };
    let y = |value: f64| HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * (value / top).clamp(0.0, 1.0);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\">");
    let (left, right, bottom) = (MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN);
    push(
        &mut svg,
        format_args!("<path d=\"M{left} {MARGIN}V{bottom}H{right}\" fill=\"none\" stroke=\"#bbb\"/>"),
    );
    push(
        &mut svg,
        format_args!(
            "<text x=\"4\" y=\"{MARGIN}\">{}</text><text x=\"4\" y=\"{bottom}\">0</text>",
            short(top)
        ),
    );
    // The last one ends below its point: behind it is no room for a long number.
    for (step, anchor) in [(steps.first(), "start"), (steps.last(), "end")] {
        let Some(step) = step else { continue };
        let (at, below) = (x(float(step.rate).max(1.0).ln()), bottom + 16.0);
        let rate = step.rate;
        push(
            &mut svg,
            format_args!("<text x=\"{at:.0}\" y=\"{below}\" text-anchor=\"{anchor}\">{rate}/s</text>"),
        );
    }
    for (number, ((name, value), colour)) in curves.iter().zip(COLOURS).enumerate() {
        let points =
            steps.iter().zip(&rates).map(|(step, rate)| format!("{:.1},{:.1}", x(*rate), y(value(step))));
        let points = points.collect::<Vec<_>>().join(" ");
        push(
            &mut svg,
            format_args!(
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
            ),
        );
        // A line of one step alone would not be seen.
        for (step, rate) in steps.iter().zip(&rates) {
            let (x, y, value) = (x(*rate), y(value(step)), value(step));
            push(
                &mut svg,
                format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"><title>{name} {value:.2} at \
                     {}/s</title></circle>",
                    step.rate
                ),
            );
        }
        let at = MARGIN + 90.0 * float(u64::try_from(number).unwrap_or(0));
        push(&mut svg, format_args!("<text x=\"{at}\" y=\"20\" style=\"fill:{colour}\">{name}</text>"));
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::usage::Usage;

    #[test]
    fn values_at_the_axis_are_short() {
        let shown = [0.04, 90.18, 100.0, 9999.0, 22_500.0, 1_234_567.0].map(short);
        assert_eq!(shown, ["0.0", "90.2", "100", "9999", "22k", "1.2M"]);
    }

    #[test]
    fn the_page_has_every_step_and_nothing_from_elsewhere() {
        let usage = Usage::default();
        let step = |rate| Step {
            rate,
            stored: rate,
            refused: 0,
            unanswered: 0,
            p50_ms: 0.5,
            p99_ms: 2.0,
            max_ms: 3.0,
            usage,
        };
        let page = page(&[step(1000), step(1500), step(2250)], "2250 messages/s are safe", "4 connections");
        assert_eq!((page.matches("<polyline").count(), page.matches("<circle").count()), (9, 27));
        let told = [
            "<td>1500</td>",
            "2250 messages/s are safe",
            "text-anchor=\"start\">1000/s</text>",
            "text-anchor=\"end\">2250/s</text>",
            "4 connections",
            "p99 2.00 at 1500/s",
        ];
        for text in told {
            assert!(page.contains(text), "{text}");
        }
        for elsewhere in ["http", "//", "<script", "url(", "@import", "NaN", "inf"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }
}
