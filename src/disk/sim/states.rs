//! The states a power cut could leave, at every moment of a recording: all of them where there are few, else a sample
//! that the seed decides. Each is put into a directory and shown to a check.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::{
    model::{Choice, Image, Moment, Question, mix},
    promise::Promise,
    recording::{Op, Recording},
    scratch,
};

/// Questions up to which every set of answers (whole calls only) is looked at.
const EXHAUSTIVE_QUESTIONS_MAX: usize = 5;
/// Losses that are told at most.
const LOSSES_TOLD_MAX: usize = 5;
const SEED_DEFAULT: u64 = 4;

/// How many states to look at: the default, or what `REVGATE_CRASH_STATES` says, divided for checks that take longer.
pub(crate) fn crash_states(default: usize, divisor: usize) -> usize {
    environment("REVGATE_CRASH_STATES").map_or(default, |states| states as usize / divisor)
}

/// What `REVGATE_CRASH_SEED` says, or always the same.
fn crash_seed() -> u64 {
    environment("REVGATE_CRASH_SEED").unwrap_or(SEED_DEFAULT)
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// A state, in a directory of its own.
#[derive(Debug)]
pub(crate) struct CrashState<'a> {
    /// What the recording's root became.
    pub(crate) dir: PathBuf,
    /// What was done before the power cut.
    before: &'a [Op],
}

impl CrashState<'_> {
    /// What was promised before the power cut.
    pub(crate) fn promise(&self) -> Promise {
        Promise::of(self.before)
    }
}

/// What a search came to.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) losses: Vec<String>,
}

impl Explored {
    /// Fails the test if any state did not hold what it must.
    #[track_caller]
    pub(crate) fn assert_sound(&self, name: &str) {
        let told = self.losses.iter().take(LOSSES_TOLD_MAX).cloned().collect::<Vec<_>>().join("\n");
        assert!(self.losses.is_empty(), "{name}: {} of {} states are bad\n{told}", self.losses.len(), self.states);
        assert!(self.states > 0, "{name}: no state was looked at");
    }
}

/// Shows a check up to `states_max` different states, of power cuts after the call number `from` or a later one.
/// The check's error says what is lost or wrong.
pub(crate) fn explore(
    recording: &Recording,
    from: usize,
    states_max: usize,
    check: &mut dyn FnMut(&CrashState<'_>) -> Result<(), String>,
) -> Explored {
    let mut search = Search { recording, seed: crash_seed(), seen: HashSet::new(), losses: Vec::new(), check };
    let weights = weights(recording, from);
    let total: usize = weights.iter().sum::<usize>().max(1);
    let mut moment = Moment::begin(recording);
    let mut budget = 0.0;
    for (cut, weight) in weights.into_iter().enumerate() {
        budget += weight as f64 * states_max as f64 / total as f64;
        let quota = budget as usize;
        if quota > 0 {
            budget -= search.look_at(&moment, cut, quota) as f64;
        }
        if let Some(op) = recording.ops.get(cut) {
            moment.advance(cut, op);
        }
    }
    Explored { states: search.seen.len(), losses: search.losses }
}

/// How much there is to look at at each moment, roughly.
fn weights(recording: &Recording, from: usize) -> Vec<usize> {
    let mut moment = Moment::begin(recording);
    let mut weights = Vec::with_capacity(recording.ops.len() + 1);
    for cut in 0..=recording.ops.len() {
        weights.push(if cut < from { 0 } else { 1 + moment.questions().len().min(12) * 2 });
        if let Some(op) = recording.ops.get(cut) {
            moment.advance(cut, op);
        }
    }
    weights
}

type Choices = BTreeMap<usize, Choice>;

struct Search<'a> {
    recording: &'a Recording,
    seed: u64,
    seen: HashSet<u64>,
    losses: Vec<String>,
    check: &'a mut dyn FnMut(&CrashState<'_>) -> Result<(), String>,
}

impl Search<'_> {
    /// Looks at up to `quota` new states of one moment; how many there were.
    fn look_at(&mut self, moment: &Moment, cut: usize, quota: usize) -> usize {
        let questions = moment.questions();
        let mut left = quota;
        for choices in candidates(&questions, mix(self.seed, cut as u64)).take(2 * quota + 4) {
            if left == 0 {
                break;
            }
            let before = &self.recording.ops[..cut];
            // What was promised counts: the same files after a promise are another state.
            let marks = before.iter().filter(|op| matches!(op, Op::Mark(_))).count();
            if self.seen.insert(mix(moment.tag(&choices), marks as u64)) {
                self.check_state(&moment.image(&choices), cut, &choices);
                left -= 1;
            }
            if questions.is_empty() {
                break;
            }
        }
        quota - left
    }

    fn check_state(&mut self, image: &Image, cut: usize, choices: &Choices) {
        let dir = scratch();
        put_down(image, dir.path());
        let state = CrashState { dir: dir.path().to_owned(), before: &self.recording.ops[..cut] };
        let teller = TellOnPanic { search_seed: self.seed, cut, choices, ops: &self.recording.ops };
        if let Err(loss) = (self.check)(&state) {
            self.losses.push(format!("{loss}\n{}", teller.describe()));
        }
    }
}

/// Answers to try: all for and all against, each set of whole calls if there are few, one against all the others,
/// then at random, writes torn among them.
fn candidates(questions: &[Question], seed: u64) -> impl Iterator<Item = Choices> {
    let answer = |is_kept: &dyn Fn(usize) -> bool| -> Choices {
        let kept = |at| if is_kept(at) { Choice::Kept } else { Choice::Dropped };
        questions.iter().enumerate().map(|(at, question)| (question.op, kept(at))).collect()
    };
    let mut planned = vec![answer(&|_| true), answer(&|_| false), random(questions, mix(seed, 2))];
    if questions.len() <= EXHAUSTIVE_QUESTIONS_MAX {
        planned.extend((0..1_usize << questions.len()).map(|set| answer(&|at| set >> at & 1 == 1)));
    } else {
        let one = mix(seed, 1) as usize % questions.len();
        planned.push(answer(&|at| at != one));
        planned.push(answer(&|at| at == one));
    }
    // Where only a few can be looked at, not always the same.
    let turn = seed as usize % planned.len();
    planned.rotate_left(turn);
    planned.into_iter().chain((0..).map(move |number| random(questions, mix(seed, number))))
}

fn random(questions: &[Question], seed: u64) -> Choices {
    // Sometimes most is there, sometimes little.
    let kept_of_8 = 1 + mix(seed, 0) % 7;
    let choose = |question: &Question| {
        let dice = mix(seed, question.op as u64 + 1);
        match (question.is_write, dice >> 8 & 7) {
            (true, 0 | 1) => Choice::Torn(dice >> 16),
            (true, 2) => Choice::KeptWithoutGrowth,
            _ if dice & 7 < kept_of_8 => Choice::Kept,
            _ => Choice::Dropped,
        }
    };
    questions.iter().map(|question| (question.op, choose(question))).collect()
}

fn put_down(image: &Image, root: &Path) {
    for dir in &image.dirs {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for (path, content) in &image.files {
        fs::write(root.join(path), content).unwrap();
    }
}

/// Says on a panic which state it was.
struct TellOnPanic<'a> {
    search_seed: u64,
    cut: usize,
    choices: &'a Choices,
    ops: &'a [Op],
}

impl TellOnPanic<'_> {
    fn describe(&self) -> String {
        let mut text = format!("seed {}, power cut before call {} of {}:", self.search_seed, self.cut, self.ops.len());
        for (number, op) in self.ops[..self.cut].iter().enumerate().skip(self.cut.saturating_sub(12)) {
            let choice = self.choices.get(&number).map(|choice| format!(" ({choice:?})")).unwrap_or_default();
            let _ = write!(text, "\n    {number} {}{choice}", brief(op));
        }
        text
    }
}

impl Drop for TellOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.describe());
        }
    }
}

fn brief(op: &Op) -> String {
    match op {
        Op::Write { file, offset, bytes } => format!("Write {{ {file:?}, {offset} + {} }}", bytes.len()),
        op => format!("{op:?}"),
    }
}
