//! The token estimate of each message of the real conversations is at most 5 % below the count, and
//! estimates of some languages are not far above it. Until a worker has counted a message, the
//! estimate stands for the count. The test of real conversations is skipped if the transcripts are
//! missing.

use anneal_core::tokens::{Encoding, count_message};
use anneal_testkit::{TranscriptFolder, parsed};

/// Estimate and exact count of one message, in tokens.
#[derive(Clone, Default)]
struct EstimateAndCount {
    /// The conversation, and the message's number in it.
    place: String,
    /// The beginning of the message.
    text: String,
    exact: u64,
    estimated: u64,
}

impl EstimateAndCount {
    fn ratio(&self) -> f64 {
        self.estimated as f64 / self.exact as f64
    }

    /// Whether the estimate is more than 5 % below the count, computed in integers.
    fn is_too_low(&self) -> bool {
        self.estimated * 100 < self.exact * 95
    }
}

/// The estimates and counts of all messages of the family (the conversations of one source) that
/// have at least one token.
fn estimates_and_counts(
    family: &anneal_testkit::Family,
    encoding: Encoding,
) -> Vec<EstimateAndCount> {
    let messages = family.chats.iter().flat_map(|chat| {
        let numbered = chat.messages.iter().enumerate();
        numbered.map(move |(index, new)| (chat, index, new))
    });
    let all = messages.map(|(chat, index, new)| {
        let message = parsed(new);
        let text = message
            .parts
            .iter()
            .map(anneal_core::message::part_text)
            .collect::<Vec<_>>()
            .join(" | ");
        EstimateAndCount {
            place: format!("{}, message {}", chat.name, index + 1),
            text: text.chars().take(80).collect(),
            exact: count_message(encoding, &message).get(),
            estimated: encoding.estimate_message(&message).get(),
        }
    });
    all.filter(|one| one.exact > 0).collect()
}

#[test]
fn estimates_never_undercount_by_more_than_5_percent_on_any_real_message() {
    let Some(folder) = TranscriptFolder::find() else {
        return;
    };
    let mut too_low = 0;
    for family in folder.all() {
        for encoding in Encoding::ALL {
            let all = estimates_and_counts(&family, encoding);
            let by_ratio =
                |a: &&EstimateAndCount, b: &&EstimateAndCount| a.ratio().total_cmp(&b.ratio());
            let (Some(lowest), Some(highest)) =
                (all.iter().min_by(by_ratio), all.iter().max_by(by_ratio))
            else {
                continue;
            };
            let sum = |read: fn(&EstimateAndCount) -> u64| all.iter().map(read).sum::<u64>() as f64;
            println!(
                "{:14} {:11} {:6} messages, all {:.3}, lowest {:.3} ({} for {}, {}), highest {:.3} ({} for {}, {})",
                family.name,
                encoding.name(),
                all.len(),
                sum(|one| one.estimated) / sum(|one| one.exact),
                lowest.ratio(),
                lowest.estimated,
                lowest.exact,
                lowest.place,
                highest.ratio(),
                highest.estimated,
                highest.exact,
                highest.place,
            );
            for one in all.iter().filter(|one| one.is_too_low()) {
                too_low += 1;
                println!(
                    "    too low: {} for {} at {}: {:?}",
                    one.estimated, one.exact, one.place, one.text
                );
            }
        }
    }
    assert_eq!(too_low, 0, "messages whose estimate is too low");
}

/// Invented messages by language.
const MESSAGES: [(&str, [&str; 3]); 4] = [
    (
        "French",
        [
            "Bonjour, j'ai réservé une chambre pour deux personnes à l'hôtel près de la gare, mais je \
             n'ai reçu aucune confirmation. Pourriez-vous vérifier s'il vous plaît si la réservation a \
             bien été enregistrée et m'envoyer le détail des frais supplémentaires ?",
            "Le garçon a mangé les pâtes que sa mère avait préparées la veille ; il était tellement \
             fatigué après l'école qu'il s'est endormi très tôt, sans même avoir terminé ses devoirs \
             de mathématiques.",
            "Nous évaluerons les résultats à la fin du trimestre. Les dépenses liées à l'énergie ont \
             augmenté de 12 %, alors que les recettes générées par les abonnés sont restées stables, \
             malgré la création d'une équipe dédiée à la fidélité.",
        ],
    ),
    (
        "Korean",
        [
            "안녕하세요. 지난주에 주문한 상품이 아직 도착하지 않았습니다. 배송 상태를 확인해 주시고, 언제쯤 받을 \
             수 있는지 알려 주시면 감사하겠습니다. 혹시 주소가 잘못 입력되었다면 연락해 주세요.",
            "오늘 회의에서는 새로운 서비스의 일정과 예산을 논의했습니다. 개발팀은 다음 달까지 첫 번째 버전을 \
             완성하기로 했고, 디자인은 사용자 의견을 반영해서 다시 검토하기로 했습니다.",
            "요즘 날씨가 너무 더워서 저녁에만 산책을 나가요. 어제는 강가에서 친구를 만나 시원한 음료를 마시면서 \
             여름휴가 계획에 대해 오래 이야기했어요. 기차표는 아직 예매하지 못했습니다.",
        ],
    ),
    (
        "Bulgarian",
        [
            "Здравейте, бих искал да попитам дали магазинът работи в неделя и дали мога да върна обувките, \
             които купих миналата седмица, защото се оказаха твърде малки за мен.",
            "Вчера в града имаше голям празник с много музика и танци, а децата получиха подаръци от \
             кмета. Времето беше слънчево и хората останаха на площада до късно вечерта.",
            "Моля, изпратете ни подписания договор и копие от документите до края на месеца, за да можем \
             да започнем работата по ремонта на покрива преди първите есенни дъждове.",
        ],
    ),
    (
        "Ukrainian",
        [
            "Доброго дня! Підкажіть, будь ласка, як швидко можна отримати нову картку, якщо стару було \
             загублено під час подорожі, і чи потрібно для цього особисто приходити до відділення банку.",
            "Учні нашої школи підготували виставку малюнків про історію міста. Найбільше відвідувачам \
             сподобалися роботи молодших класів, у яких зображено старий вокзал і річку взимку.",
            "Завтра вранці поїзд вирушає о сьомій годині, тому краще зібрати речі ще сьогодні ввечері та \
             перевірити, чи всі квитки й документи лежать у сумці.",
        ],
    ),
];

#[test]
fn french_korean_and_cyrillic_are_overcounted_by_at_most_thirty_percent() {
    for encoding in Encoding::ALL {
        for (language, texts) in MESSAGES {
            let ratio = |texts: &[&str]| {
                let sum = |count: fn(Encoding, &str) -> u64| {
                    texts.iter().map(|text| count(encoding, text)).sum::<u64>() as f64
                };
                sum(|encoding, text| encoding.estimate(text).get())
                    / sum(|encoding, text| encoding.counter().count(text).get())
            };
            let all = ratio(&texts);
            println!("{language:10} {:11} {all:.3}", encoding.name());
            assert!(
                (0.95..=1.3).contains(&all),
                "{language}, {encoding:?}: {all:.3}"
            );
            for text in texts {
                let one = ratio(&[text]);
                assert!(
                    (0.95..=1.45).contains(&one),
                    "{language}, {encoding:?}: {one:.3} for {text:?}"
                );
            }
        }
    }
}
