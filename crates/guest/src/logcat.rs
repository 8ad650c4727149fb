//! `logcat`: which entries it was asked for, and how they are written.

use std::time::Duration;

use crate::logs::{Buffer, Entry, Level};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub action: Action,
    pub buffers: Vec<Buffer>,
    pub filter: Filter,
    pub format: Format,
    pub stamp: Stamp,
    pub dividers: bool,
    /// End when everything that is there has been shown.
    pub dump: bool,
    /// Only the newest, that many.
    pub tail: Option<usize>,
    /// Only what came after.
    pub since: Option<Duration>,
    /// End after that many.
    pub count: Option<usize>,
    pub pid: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Show,
    Clear,
    Sizes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Brief,
    Process,
    Tag,
    Thread,
    Raw,
    Time,
    ThreadTime,
    Long,
}

/// How a time is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    epoch: bool,
    year: bool,
    micros: bool,
}

/// Which tags pass from which level on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    rules: Vec<(String, Level)>,
    default: Level,
}

impl Filter {
    /// Reads `TAG:LEVEL`, `TAG` and `*:LEVEL`; what is named last for a tag holds.
    pub fn parse<'a>(specs: impl IntoIterator<Item = &'a str>) -> Result<Filter, String> {
        let mut filter = Filter { rules: Vec::new(), default: Level::Verbose };
        for spec in specs {
            let (tag, level) = match spec.rsplit_once(':') {
                Some((tag, "")) => (tag, Level::Verbose),
                Some((tag, level)) => {
                    (tag, Level::parse(level).ok_or_else(|| format!("Invalid filter expression '{spec}'"))?)
                }
                None if spec == "*" => (spec, Level::Debug),
                None => (spec, Level::Verbose),
            };
            if tag == "*" {
                filter.default = level;
            } else {
                filter.rules.push((tag.to_owned(), level));
            }
        }
        Ok(filter)
    }

    pub fn passes(&self, entry: &Entry) -> bool {
        let rule = self.rules.iter().rev().find(|(tag, _)| *tag == entry.tag);
        let from = rule.map_or(self.default, |(_, level)| *level);
        from != Level::Silent && entry.level >= from
    }
}

impl Options {
    /// Reads the command line. `tags` are the filters of the environment, used when the line names none.
    pub fn parse(args: &[String], tags: &str) -> Result<Options, String> {
        let mut options = Options {
            action: Action::Show,
            buffers: Vec::new(),
            filter: Filter::parse([])?,
            format: Format::ThreadTime,
            stamp: Stamp::default(),
            dividers: false,
            dump: false,
            tail: None,
            since: None,
            count: None,
            pid: None,
        };
        let (mut specs, mut silent) = (Vec::new(), false);
        let mut args = Arguments::new(args);
        while let Some(option) = args.next() {
            match option.as_str() {
                "-d" | "--dump" => options.dump = true,
                "-c" | "--clear" => options.action = Action::Clear,
                "-g" | "--buffer-size" => options.action = Action::Sizes,
                "-D" | "--dividers" => options.dividers = true,
                "-s" => silent = true,
                "-b" | "--buffer" => {
                    for name in args.value(&option)?.split(',') {
                        match name {
                            "all" => options.buffers.extend(Buffer::ALL),
                            "default" => options.buffers.extend(Buffer::DEFAULT),
                            name => options
                                .buffers
                                .push(Buffer::parse(name).ok_or_else(|| format!("unknown buffer '{name}'"))?),
                        }
                    }
                }
                "-v" | "--format" => {
                    for name in args.value(&option)?.split(',') {
                        options.set_format(name)?;
                    }
                }
                "-t" | "-T" => {
                    options.dump |= option == "-t";
                    let value = args.value(&option)?;
                    match value.parse() {
                        Ok(count) => options.tail = Some(count),
                        Err(_) => {
                            let time = parse_time(&value);
                            let wrong = || format!("{option} wants a count or a time, not '{value}'");
                            options.since = Some(time.ok_or_else(wrong)?);
                        }
                    }
                }
                "-m" | "--max-count" => options.count = Some(number(&option, &args.value(&option)?)?),
                "--pid" => options.pid = Some(number(&option, &args.value(&option)?)?),
                // The device keeps no other log than this one, and its sizes are fixed.
                "-L" | "--last" => options.dump = true,
                "-G" | "-P" | "--prune" => drop(args.value(&option)?),
                "-B" | "-S" | "--statistics" | "-f" | "-r" | "-n" | "-e" | "--regex" => {
                    return Err(format!("this device's logcat does not know {option}"));
                }
                option if option.starts_with('-') && option.len() > 1 => {
                    return Err(format!("unknown option {option}"));
                }
                spec => specs.push(spec.to_owned()),
            }
        }
        if specs.is_empty() {
            specs = tags.split_whitespace().map(str::to_owned).collect();
        }
        if silent {
            specs.insert(0, "*:S".to_owned());
        }
        options.filter = Filter::parse(specs.iter().map(String::as_str))?;
        if options.buffers.is_empty() {
            options.buffers = Buffer::DEFAULT.to_vec();
        }
        options.buffers.sort_by_key(|buffer| *buffer as usize);
        options.buffers.dedup();
        Ok(options)
    }

    fn set_format(&mut self, name: &str) -> Result<(), String> {
        match name {
            "brief" => self.format = Format::Brief,
            "process" => self.format = Format::Process,
            "tag" => self.format = Format::Tag,
            "thread" => self.format = Format::Thread,
            "raw" => self.format = Format::Raw,
            "time" => self.format = Format::Time,
            "threadtime" => self.format = Format::ThreadTime,
            "long" => self.format = Format::Long,
            "epoch" => self.stamp.epoch = true,
            "year" => self.stamp.year = true,
            "usec" => self.stamp.micros = true,
            // The device's zone is UTC, its log has no colours, no descriptions and no users.
            "color" | "colour" | "descriptive" | "monotonic" | "printable" | "uid" | "UTC" | "zone" => {}
            name => return Err(format!("Invalid parameter \"{name}\" to -v")),
        }
        Ok(())
    }

    pub fn passes(&self, entry: &Entry) -> bool {
        self.filter.passes(entry)
            && self.pid.is_none_or(|pid| pid == entry.pid)
            && self.since.is_none_or(|since| entry.time >= since)
    }

    /// One entry as text; several lines become several entries, as Android writes them.
    pub fn write(&self, entry: &Entry) -> String {
        let (level, tag, pid) = (entry.level.letter(), &entry.tag, entry.pid);
        let time = self.stamp.write(entry.time);
        let head = match self.format {
            Format::Raw => String::new(),
            Format::Brief => format!("{level}/{tag:<8}({pid:5}): "),
            Format::Process => format!("{level}({pid:5}) "),
            Format::Tag => format!("{level}/{tag:<8}: "),
            Format::Thread => format!("{level}({pid:5}:{pid:5}) "),
            Format::Time => format!("{time} {level}/{tag:<8}({pid:5}): "),
            Format::ThreadTime => format!("{time} {pid:5} {pid:5} {level} {tag:<8}: "),
            Format::Long => {
                return format!("[ {time} {pid:5}:{pid:5} {level}/{tag:<8} ]\n{}\n\n", entry.message);
            }
        };
        let tail = if self.format == Format::Process { format!("  ({tag})") } else { String::new() };
        entry.message.split('\n').map(|line| format!("{head}{line}{tail}\n")).collect()
    }
}

fn number<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{option} wants a number, not '{value}'"))
}

/// Walks over a command line where `-b main`, `-bmain` and `--buffer=main` are the same.
struct Arguments<'a> {
    rest: std::slice::Iter<'a, String>,
    attached: Option<String>,
}

impl<'a> Arguments<'a> {
    fn new(args: &'a [String]) -> Arguments<'a> {
        Arguments { rest: args.iter(), attached: None }
    }

    fn next(&mut self) -> Option<String> {
        // Letters without a value may be written together, `-dc`.
        if let Some(rest) = self.attached.take() {
            return Some(self.split(&format!("-{rest}")));
        }
        let word = self.rest.next()?.clone();
        Some(self.split(&word))
    }

    fn split(&mut self, word: &str) -> String {
        if let Some(long) = word.strip_prefix("--") {
            if let Some((name, value)) = long.split_once('=') {
                self.attached = Some(value.to_owned());
                return format!("--{name}");
            }
            return word.to_owned();
        }
        let mut letters = word.chars();
        match (letters.next(), letters.next()) {
            (Some('-'), Some(letter)) => {
                let rest: String = letters.collect();
                self.attached = (!rest.is_empty()).then_some(rest);
                format!("-{letter}")
            }
            _ => word.to_owned(),
        }
    }

    fn value(&mut self, option: &str) -> Result<String, String> {
        self.attached
            .take()
            .or_else(|| self.rest.next().cloned())
            .ok_or_else(|| format!("{option} wants a value"))
    }
}

impl Stamp {
    fn write(self, time: Duration) -> String {
        let fraction = if self.micros {
            format!("{:06}", time.subsec_micros())
        } else {
            format!("{:03}", time.subsec_millis())
        };
        if self.epoch {
            return format!("{:>10}.{fraction}", time.as_secs());
        }
        let date = Date::of(time.as_secs());
        let year = if self.year { format!("{:04}-", date.year) } else { String::new() };
        format!(
            "{year}{:02}-{:02} {:02}:{:02}:{:02}.{fraction}",
            date.month, date.day, date.hour, date.minute, date.second
        )
    }
}

/// A time in UTC, the only zone the device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    pub year: u64,
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
    /// 0 is Sunday.
    pub weekday: u64,
}

impl Date {
    /// The civil calendar, reckoned in eras of 400 years that begin on a first of March.
    pub fn of(seconds: u64) -> Date {
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Date {
            year: year_of_era + era * 400 + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            weekday: (days + 4) % 7,
        }
    }
}

/// `MM-DD hh:mm:ss.mmm`, with a year before it or as seconds since 1970.
fn parse_time(text: &str) -> Option<Duration> {
    if let Some((seconds, fraction)) = text.split_once('.')
        && let Ok(seconds) = seconds.parse()
    {
        return Some(Duration::from_secs(seconds) + parse_fraction(fraction)?);
    }
    let (date, clock) = text.split_once(' ')?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let numbers = |text: &str, by: char| {
        text.split(by).map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>()
    };
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?;
    let (year, month, day) = match numbers(date, '-')?.as_slice() {
        [month, day] => (Date::of(now.as_secs()).year, *month, *day),
        [year, month, day] => (*year, *month, *day),
        _ => return None,
    };
    let [hour, minute, second] = numbers(clock, ':')?.try_into().ok()?;
    if !(1970..10_000).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let (shifted_year, from_march) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = 365 * shifted_year + shifted_year / 4 - shifted_year / 100 + shifted_year / 400 + day_of_year;
    let days = days.checked_sub(719_468)?;
    Some(Duration::from_secs(days * 86_400 + hour * 3600 + minute * 60 + second) + parse_fraction(fraction)?)
}

fn parse_fraction(digits: &str) -> Option<Duration> {
    let digits: String = digits.chars().take(9).collect();
    Some(Duration::from_nanos(format!("{digits:0<9}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Action, Date, Filter, Options, parse_time};
    use crate::logs::{Buffer, Entry, Level};

    fn entry(tag: &str, level: Level, message: &str) -> Entry {
        let time = Duration::from_millis(1_700_000_000_123);
        Entry {
            number: 1,
            time,
            pid: 42,
            level,
            buffer: Buffer::Main,
            tag: tag.to_owned(),
            message: message.to_owned(),
        }
    }

    fn parse(line: &str) -> Result<Options, String> {
        let args: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Options::parse(&args, "")
    }

    #[test]
    fn a_filter_lets_tags_through_from_their_level_on() {
        for (specs, tag, level, passes) in [
            ("", "a", Level::Verbose, true),
            ("a:W", "a", Level::Info, false),
            ("a:W", "a", Level::Warn, true),
            ("a:W", "b", Level::Verbose, true),
            ("a:W *:S", "b", Level::Fatal, false),
            ("a *:S", "a", Level::Verbose, true),
            ("*:e", "a", Level::Warn, false),
            ("*:e a:d", "a", Level::Debug, true),
            ("a:s", "a", Level::Fatal, false),
            ("a:w a:v", "a", Level::Verbose, true),
            ("com.x:y:i", "com.x:y", Level::Info, true),
            ("*", "a", Level::Verbose, false),
        ] {
            let filter = Filter::parse(specs.split_whitespace()).expect("a filter");
            assert_eq!(filter.passes(&entry(tag, level, "")), passes, "{specs} on {tag}");
        }
        assert_eq!(Filter::parse(["a:x"]), Err("Invalid filter expression 'a:x'".to_owned()));
    }

    #[test]
    fn every_format_writes_as_android_does() {
        for (format, text) in [
            ("brief", "W/tag     (   42): one\nW/tag     (   42): two\n"),
            ("process", "W(   42) one  (tag)\nW(   42) two  (tag)\n"),
            ("tag", "W/tag     : one\nW/tag     : two\n"),
            ("thread", "W(   42:   42) one\nW(   42:   42) two\n"),
            ("raw", "one\ntwo\n"),
            (
                "time",
                "11-14 22:13:20.123 W/tag     (   42): one\n11-14 22:13:20.123 W/tag     (   42): two\n",
            ),
            (
                "threadtime",
                "11-14 22:13:20.123    42    42 W tag     : one\n11-14 22:13:20.123    42    42 W tag     : two\n",
            ),
            ("long", "[ 11-14 22:13:20.123    42:   42 W/tag      ]\none\ntwo\n\n"),
            ("time,epoch", "1700000000.123 W/tag     (   42): one\n1700000000.123 W/tag     (   42): two\n"),
            ("raw,year,usec", "one\ntwo\n"),
        ] {
            let options = parse(&format!("-v {format}")).expect("options");
            assert_eq!(options.write(&entry("tag", Level::Warn, "one\ntwo")), text, "{format}");
        }
    }

    #[test]
    fn the_command_line_is_read_as_logcat_reads_it() {
        let options = parse("-dc -b events,radio -bmain -t 5 --pid=7 -m3 -s a:I").expect("options");

        assert!(options.dump);
        assert_eq!(options.action, Action::Clear);
        assert_eq!(options.buffers, [Buffer::Main, Buffer::Events, Buffer::Radio]);
        assert_eq!((options.tail, options.pid, options.count), (Some(5), Some(7), Some(3)));
        assert!(!options.filter.passes(&entry("b", Level::Fatal, "")));
        assert!(options.filter.passes(&entry("a", Level::Info, "")));
    }

    #[test]
    fn a_wrong_command_line_is_explained() {
        for (line, reason) in [
            ("-b nope", "unknown buffer 'nope'"),
            ("-b", "-b wants a value"),
            ("-v nope", "Invalid parameter \"nope\" to -v"),
            ("-m many", "-m wants a number, not 'many'"),
            ("-x", "unknown option -x"),
            ("-f file", "this device's logcat does not know -f"),
        ] {
            assert_eq!(parse(line), Err(reason.to_owned()), "{line}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar_both_ways() {
        for (text, seconds) in [
            ("1970-01-01 00:00:00.0", 0),
            ("2000-02-29 12:00:00.0", 951_825_600),
            ("2023-11-14 22:13:20.0", 1_700_000_000),
            ("2100-03-01 00:00:01.0", 4_107_542_401),
        ] {
            let time = parse_time(text).expect("a time");
            assert_eq!(time, Duration::from_secs(seconds), "{text}");
            let date = Date::of(seconds);
            let written = format!(
                "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.0",
                date.year, date.month, date.day, date.hour, date.minute, date.second
            );
            assert_eq!(written, text);
        }
        for text in ["", "now", "13-40 00:00:00", "01-01 99:00:00.0", "0-0 0:0:0"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
