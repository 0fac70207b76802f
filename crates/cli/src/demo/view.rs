//! The demo's display: a table that redraws itself on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// One server of a frame.
pub(crate) struct ServerRow {
    pub(crate) name: String,
    pub(crate) cpu_percent: Option<f64>,
    pub(crate) actors: u64,
    pub(crate) note: String,
}

/// A sample of the running experiment.
pub(crate) struct Frame<'a> {
    pub(crate) title: &'a str,
    pub(crate) elapsed: Duration,
    pub(crate) length: Duration,
    pub(crate) servers: &'a [ServerRow],
    pub(crate) p50: Option<Duration>,
    pub(crate) p99: Option<Duration>,
    pub(crate) calls: u64,
    pub(crate) calls_per_second: f64,
    pub(crate) failed: u64,
    /// Decisions so far, oldest first.
    pub(crate) decisions: &'a [String],
}

/// The number of decisions shown, the newest ones.
const DECISIONS_SHOWN: usize = 6;

/// The interval of progress lines without a terminal.
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(2);

const BAR_WIDTH: usize = 24;

/// Draws frames to standard output.
pub(crate) struct View {
    terminal: bool,
    lines_drawn: usize,
    decisions_printed: Vec<String>,
    last_line: Option<Duration>,
}

impl View {
    /// A view that redraws itself if standard output is a terminal.
    pub(crate) fn new() -> View {
        View {
            terminal: std::io::stdout().is_terminal(),
            lines_drawn: 0,
            decisions_printed: Vec::new(),
            last_line: None,
        }
    }

    /// Shows a frame.
    pub(crate) fn draw(&mut self, frame: &Frame<'_>) {
        let text = if self.terminal {
            self.redrawn(frame)
        } else {
            self.plain(frame)
        };
        let mut out = std::io::stdout().lock();
        // A closed pipe must not end the experiment.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Keeps the last frame, so that later output starts below it.
    pub(crate) fn finish(&mut self) {
        self.lines_drawn = 0;
    }

    fn redrawn(&mut self, frame: &Frame<'_>) -> String {
        let lines = lines_of(frame);
        // Long lines are cut instead of wrapped, because a wrapped line would count as two.
        let mut text = String::from("\x1b[?7l");
        if self.lines_drawn > 0 {
            text += &format!("\x1b[{}A", self.lines_drawn);
        }
        for line in &lines {
            text += &format!("\x1b[2K{line}\n");
        }
        // Clears the rest of a longer previous frame.
        text += "\x1b[0J\x1b[?7h";
        self.lines_drawn = lines.len();
        text
    }

    /// Prints new decisions, and a progress line at intervals.
    fn plain(&mut self, frame: &Frame<'_>) -> String {
        let mut text = String::new();
        if self.last_line.is_none() {
            text += &format!("{}\n", frame.title);
        }
        for decision in frame.decisions {
            if !self.decisions_printed.contains(decision) {
                text += &format!("{:>4.0} s  {decision}\n", frame.elapsed.as_secs_f64());
                self.decisions_printed.push(decision.clone());
            }
        }
        if self
            .last_line
            .is_some_and(|last| frame.elapsed < last + PLAIN_LINE_EVERY)
        {
            return text;
        }
        self.last_line = Some(frame.elapsed);
        let servers: Vec<String> = frame
            .servers
            .iter()
            .map(|server| {
                format!(
                    "{} {} ({} actors)",
                    server.name,
                    percent(server.cpu_percent),
                    server.actors
                )
            })
            .collect();
        text += &format!(
            "{:>4.0} s  p50 {} p99 {} · {:.0} calls/s · {} failed · {}\n",
            frame.elapsed.as_secs_f64(),
            millis(frame.p50),
            millis(frame.p99),
            frame.calls_per_second,
            frame.failed,
            servers.join(" · "),
        );
        text
    }
}

fn lines_of(frame: &Frame<'_>) -> Vec<String> {
    let mut lines = vec![
        format!(
            "\x1b[1m{}\x1b[0m  {:.0} of {:.0} s",
            frame.title,
            frame.elapsed.as_secs_f64(),
            frame.length.as_secs_f64()
        ),
        format!(
            "  latency  p50 \x1b[1m{}\x1b[0m  p99 {}   {:.0} calls/s   {} calls, {} failed",
            millis(frame.p50),
            millis(frame.p99),
            frame.calls_per_second,
            frame.calls,
            frame.failed
        ),
    ];
    for server in frame.servers {
        lines.push(format!(
            "  {:<10} cpu {} {:>6}  {:>3} actors  {}",
            server.name,
            bar(server.cpu_percent),
            percent(server.cpu_percent),
            server.actors,
            server.note
        ));
    }
    let hidden = frame.decisions.len().saturating_sub(DECISIONS_SHOWN);
    if hidden > 0 {
        lines.push(format!("  … {hidden} earlier decisions"));
    }
    lines.extend(frame.decisions[hidden..].iter().map(|decision| format!("  {decision}")));
    lines
}

fn bar(percent: Option<f64>) -> String {
    let share = percent.unwrap_or(0.0).clamp(0.0, 100.0) / 100.0;
    let filled = (share * BAR_WIDTH as f64).round() as usize;
    format!("{}{}", "█".repeat(filled), "░".repeat(BAR_WIDTH - filled))
}

fn percent(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| format!("{value:.0} %"))
}

/// A latency in milliseconds, for display.
pub(crate) fn millis(value: Option<Duration>) -> String {
    value.map_or("–".into(), |value| format!("{:.1} ms", value.as_secs_f64() * 1000.0))
}
