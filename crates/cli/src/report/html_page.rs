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
    // Split before anything is inserted, so that no text is taken for a placeholder.
    let (head, tail) = PAGE.split_once("{{data}}").unwrap_or((PAGE, ""));
    let head = head.replace("{{style}}", STYLE).replace("{{title}}", &title);
    let tail = tail.replace("{{script}}", SCRIPT);
    Ok([&*head, &json, &*tail].concat())
}
