//! The settings of a policy: `period 80 s;` and `count per minute;`.

use std::time::Duration;

use super::suggest;
use crate::ast::{Name, Number, SettingAst, SettingValue};
use crate::policy::Settings;
use crate::{CountUnit, Diagnostic, Span};

/// The shortest elasticity period. Below it, profiling costs more than elasticity gains.
pub(super) const PERIOD_MIN: Duration = Duration::from_millis(100);
/// The longest elasticity period. A longer one is probably a mistake.
pub(super) const PERIOD_MAX: Duration = Duration::from_secs(24 * 3600);

const SETTINGS: [&str; 2] = ["period", "count"];
const TIME_UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];

pub(super) fn check(settings: &[SettingAst], diagnostics: &mut Vec<Diagnostic>) -> Settings {
    let mut result = Settings::default();
    let mut seen: Vec<&Name> = Vec::new();
    for setting in settings {
        if let Some(first) = seen.iter().find(|name| name.text == setting.name.text) {
            let message = format!("`{}` is set twice", setting.name.text);
            diagnostics.push(
                Diagnostic::error("duplicate-setting", setting.name.span, message).also(first.span, "first here"),
            );
            continue;
        }
        let checked = match setting.name.text.as_str() {
            "period" => period(setting).map(|period| result.period = Some(period)),
            "count" => count(setting).map(|unit| result.count_unit = unit),
            other => {
                let message = format!("there is no setting `{other}`");
                diagnostics.push(
                    Diagnostic::error("unknown-setting", setting.name.span, message)
                        .help(suggest::help(other, "settings", SETTINGS)),
                );
                continue;
            }
        };
        seen.push(&setting.name);
        if let Err(error) = checked {
            diagnostics.push(*error);
        }
    }
    result
}

fn period(setting: &SettingAst) -> Result<Duration, Box<Diagnostic>> {
    let wrong = |span: Span, message: String| {
        Box::new(
            Diagnostic::error("bad-period", span, message).help("for example `period 80 s;` (`ms`, `s`, `min` or `h`)"),
        )
    };
    let [SettingValue::Number(number), SettingValue::Name(unit)] = &setting.values[..] else {
        return Err(wrong(setting.span, "a period is a number and a unit of time".into()));
    };
    let Some((_, seconds)) = TIME_UNITS.iter().find(|(name, _)| *name == unit.text) else {
        return Err(wrong(unit.span, format!("`{}` is not a unit of time", unit.text)));
    };
    in_range(number, *seconds).ok_or_else(|| {
        let message = format!(
            "a period is between {} ms and {} h",
            PERIOD_MIN.as_millis(),
            PERIOD_MAX.as_secs() / 3600
        );
        wrong(number.span, message)
    })
}

fn in_range(number: &Number, unit_seconds: f64) -> Option<Duration> {
    let period = Duration::try_from_secs_f64(number.value * unit_seconds).ok()?;
    (PERIOD_MIN..=PERIOD_MAX).contains(&period).then_some(period)
}

fn count(setting: &SettingAst) -> Result<CountUnit, Box<Diagnostic>> {
    let wrong = |span| {
        let error = Diagnostic::error("bad-count-unit", span, "calls are counted per second, minute or hour");
        Box::new(error.help("for example `count per second;`"))
    };
    let [SettingValue::Name(per), SettingValue::Name(unit)] = &setting.values[..] else {
        return Err(wrong(setting.span));
    };
    if per.text != "per" {
        return Err(wrong(per.span));
    }
    CountUnit::ALL
        .into_iter()
        .find(|known| known.name() == unit.text)
        .ok_or_else(|| wrong(unit.span))
}
