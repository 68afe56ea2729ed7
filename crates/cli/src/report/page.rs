//! A report as one page of HTML that needs nothing else: no network, no other file.

use super::figures::Report;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The page.
///
/// # Errors
/// Figures that JSON has no words for.
pub fn page(report: &Report) -> serde_json::Result<String> {
    let json = serde_json::to_string(report)?;
    // What others chose as names can't end the script.
    let json = json.replace('<', "\\u003c");
    let title = format!("HawkEye: {}", report.host);
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    // The data last: nothing in them is taken for a place to fill.
    let page = PAGE
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT);
    let page = page.replace("{{title}}", &title);
    let (head, tail) = page.split_once("{{data}}").unwrap_or((&page, ""));
    Ok([head, &json, tail].concat())
}
