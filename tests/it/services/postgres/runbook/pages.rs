//! The runbook as it stands: its sections, their commands, and what it says that
//! these print.

const RUNBOOK: &str = include_str!("../../../../../src/guide/runbook.md");

/// A section with the commands in it.
#[derive(Debug)]
pub(super) struct Section {
    pub title: &'static str,
    pub steps: Vec<Step>,
}

/// A command, and parts of what it prints.
#[derive(Debug)]
pub(super) struct Step {
    pub command: &'static str,
    pub expected: Vec<&'static str>,
}

/// All sections that have commands, in their order.
pub(super) fn sections() -> Vec<Section> {
    let mut sections = Vec::<Section>::new();
    let mut block = None;
    for line in RUNBOOK.lines() {
        if let Some(language) = line.strip_prefix("```") {
            block = block.is_none().then_some(language);
        } else if block == Some("console") {
            let section = sections.last_mut();
            read(&mut section.expect("commands are in a section").steps, line);
        } else if let Some(title) = line.strip_prefix("# ").filter(|_| block.is_none()) {
            let steps = Vec::new();
            sections.push(Section { title, steps });
        }
    }
    sections.retain(|section| !section.steps.is_empty());
    sections
}

fn read(steps: &mut Vec<Step>, line: &'static str) {
    if let Some(command) = line.strip_prefix("$ ") {
        let expected = Vec::new();
        return steps.push(Step { command, expected });
    }
    let expected = line.strip_prefix("# expect: ");
    let expected = expected.unwrap_or_else(|| panic!("neither a command nor expected: {line}"));
    let step = steps.last_mut().expect("a command comes first");
    step.expected.push(expected);
}
