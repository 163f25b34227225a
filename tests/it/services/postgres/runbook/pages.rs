//! The runbook as it stands: its sections, their commands, and what it says that
//! these print.

use std::{fs, path::Path};

/// A section with the commands in it.
#[derive(Debug)]
pub(super) struct Section {
    pub title: String,
    pub steps: Vec<Step>,
}

/// A command, and parts of what it prints.
#[derive(Debug)]
pub(super) struct Step {
    pub command: String,
    pub expected: Vec<String>,
}

/// All sections that have commands, in their order.
pub(super) fn sections() -> Vec<Section> {
    let mut sections = Vec::<Section>::new();
    let mut block = None;
    let runbook = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/runbook.md");
    let runbook = fs::read_to_string(runbook).expect("the runbook");
    for line in runbook.lines() {
        if let Some(language) = line.strip_prefix("```") {
            block = block.is_none().then_some(language);
        } else if block == Some("console") {
            let section = sections.last_mut();
            read(&mut section.expect("commands are in a section").steps, line);
        } else if let Some(title) = line.strip_prefix("# ").filter(|_| block.is_none()) {
            let steps = Vec::new();
            let title = title.to_owned();
            sections.push(Section { title, steps });
        }
    }
    sections.retain(|section| !section.steps.is_empty());
    sections
}

fn read(steps: &mut Vec<Step>, line: &str) {
    if let Some(command) = line.strip_prefix("$ ") {
        let (command, expected) = (command.to_owned(), Vec::new());
        return steps.push(Step { command, expected });
    }
    let expected = line.strip_prefix("# expect: ");
    let expected = expected.unwrap_or_else(|| panic!("neither a command nor expected: {line}"));
    let step = steps.last_mut().expect("a command comes first");
    step.expected.push(expected.to_owned());
}
