//! A report as one self-contained page of HTML: it needs no network and no other file.

use super::recording_report::RecordingReport;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

pub fn html_page(report: &RecordingReport) -> serde_json::Result<String> {
    let json = serde_json::to_string(report)?;
    // Escaped, so that names chosen by users can't end the script.
    let json = json.replace('<', "\\u003c");
    let title = format!("HawkEye: {}", report.host).replace('&', "&amp;").replace('<', "&lt;");
    // The data come last, so that nothing in them is taken for a placeholder.
    let page = PAGE.replace("{{style}}", STYLE);
    let page = page.replace("{{script}}", SCRIPT).replace("{{title}}", &title);
    let (head, tail) = page.split_once("{{data}}").unwrap_or((&page, ""));
    Ok([head, &json, tail].concat())
}
