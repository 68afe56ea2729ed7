//! Lines `NAME : VALUE`, as in `/proc/cpuinfo`.

/// The value of the first line with this name, without surrounding space.
pub fn find_value_by_name<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(found, _)| found.trim() == name);
    values.next().map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 6\nmodel name\t: A processor\n";
        assert_eq!(find_value_by_name(text, "model name"), Some("A processor"));
        assert_eq!(find_value_by_name(text, "name"), None);
    }
}
