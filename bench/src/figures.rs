//! Medians, quartiles and goals: what is said about the rounds of one measurement.

/// One figure a round; there is at least one.
#[derive(Debug, Clone)]
pub struct Figures(Vec<f64>);

/// What Paddock and a peer reached, round by round.
#[derive(Debug, Default)]
pub struct Pairs {
    ours: Vec<f64>,
    peer: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// One line of the result.
pub struct Row {
    pub name: String,
    pub figures: Figures,
    pub goal: Option<Goal>,
    /// The absolute figures behind the ratio; they say something about this machine only.
    pub note: String,
}

impl Figures {
    pub fn of(rounds: impl IntoIterator<Item = f64>) -> Self {
        let mut rounds: Vec<f64> = rounds.into_iter().collect();
        rounds.sort_by(f64::total_cmp);
        assert!(!rounds.is_empty(), "a measurement has at least one round");
        Figures(rounds)
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn lower_quartile(&self) -> f64 {
        self.quantile(0.25)
    }

    pub fn upper_quartile(&self) -> f64 {
        self.quantile(0.75)
    }

    pub fn least(&self) -> f64 {
        self.quantile(0.0)
    }

    pub fn greatest(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Between two rounds, the straight line that joins them.
    fn quantile(&self, share: f64) -> f64 {
        let place = share * (self.0.len() - 1) as f64;
        let below = self.0[place.floor() as usize];
        let above = self.0[place.ceil() as usize];
        below + (above - below) * place.fract()
    }
}

impl Pairs {
    pub fn push(&mut self, ours: f64, peer: f64) {
        self.ours.push(ours);
        self.peer.push(peer);
    }

    /// Ours divided by the peer's of the same round.
    pub fn ratios(&self) -> Figures {
        Figures::of(self.ours.iter().zip(&self.peer).map(|(ours, peer)| ours / peer))
    }

    pub fn peer(&self) -> Figures {
        Figures::of(self.peer.iter().copied())
    }

    /// The medians of both sides, in `unit`.
    pub fn note(&self, unit: &str) -> String {
        let median = |side: &[f64]| short(Figures::of(side.iter().copied()).median());
        format!("{} {unit} ÷ {} {unit}", median(&self.ours), median(&self.peer))
    }
}

impl Goal {
    /// The quartile on the bad side decides, so that one lucky round proves nothing.
    pub fn deciding(self, figures: &Figures) -> f64 {
        match self {
            Goal::AtLeast(_) => figures.lower_quartile(),
            Goal::AtMost(_) => figures.upper_quartile(),
        }
    }

    pub fn met_by(self, figures: &Figures) -> bool {
        match self {
            Goal::AtLeast(limit) => self.deciding(figures) >= limit,
            Goal::AtMost(limit) => self.deciding(figures) <= limit,
        }
    }
}

impl Row {
    /// Nothing where there is no goal.
    pub fn met(&self) -> Option<bool> {
        self.goal.map(|goal| goal.met_by(&self.figures))
    }

    /// Median, lower quartile, upper quartile, and least to greatest.
    pub fn cells(&self) -> [String; 4] {
        let figures = &self.figures;
        [
            short(figures.median()),
            short(figures.lower_quartile()),
            short(figures.upper_quartile()),
            format!("{} to {}", short(figures.least()), short(figures.greatest())),
        ]
    }

    pub fn goal_in_words(&self) -> String {
        match self.goal {
            Some(Goal::AtLeast(limit)) => format!("≥ {limit}"),
            Some(Goal::AtMost(limit)) => format!("≤ {limit}"),
            None => String::new(),
        }
    }

    /// The figure that was held against the goal, in words.
    pub fn deciding(&self) -> String {
        let side = match self.goal {
            Some(Goal::AtLeast(_)) => "lower quartile",
            Some(Goal::AtMost(_)) => "upper quartile",
            None => return String::new(),
        };
        let figure = self.goal.map_or(f64::NAN, |goal| goal.deciding(&self.figures));
        format!("{side} {}", short(figure))
    }
}

/// Three digits that matter.
fn short(figure: f64) -> String {
    match figure.abs() {
        size if size < 1.0 => format!("{figure:.3}"),
        size if size < 10.0 => format!("{figure:.2}"),
        size if size < 100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_stand_between_the_rounds_whatever_their_order() {
        for (rounds, least, lower, median, upper, greatest) in [
            (vec![7.0], 7.0, 7.0, 7.0, 7.0, 7.0),
            (vec![2.0, 1.0], 1.0, 1.25, 1.5, 1.75, 2.0),
            (vec![3.0, 1.0, 2.0], 1.0, 1.5, 2.0, 2.5, 3.0),
            (vec![50.0, 10.0, 40.0, 20.0, 30.0], 10.0, 20.0, 30.0, 40.0, 50.0),
        ] {
            let figures = Figures::of(rounds);
            assert_eq!(figures.least(), least);
            assert_eq!(figures.lower_quartile(), lower);
            assert_eq!(figures.median(), median);
            assert_eq!(figures.upper_quartile(), upper);
            assert_eq!(figures.greatest(), greatest);
        }
    }

    #[test]
    fn the_bad_quartile_decides_over_a_goal() {
        // Quartiles 20 and 40, median 30.
        let figures = Figures::of([10.0, 20.0, 30.0, 40.0, 50.0]);
        for (goal, met) in [
            (Goal::AtLeast(20.0), true),
            (Goal::AtLeast(25.0), false),
            (Goal::AtMost(40.0), true),
            (Goal::AtMost(35.0), false),
        ] {
            assert_eq!(goal.met_by(&figures), met, "{goal:?}");
        }
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        let mut pairs = Pairs::default();
        // The machine was twice as slow in the second round, for both.
        pairs.push(30.0, 60.0);
        pairs.push(15.0, 30.0);

        let ratios = pairs.ratios();

        assert_eq!((ratios.least(), ratios.greatest()), (0.5, 0.5));
        assert_eq!(pairs.note("/s"), "22.5 /s ÷ 45.0 /s");
    }

    #[test]
    fn a_figure_is_as_long_as_it_means() {
        for (figure, text) in [(0.4567, "0.457"), (4.567, "4.57"), (45.67, "45.7"), (4567.8, "4568")] {
            assert_eq!(short(figure), text);
        }
    }
}
