"""Texts: a classifier of news, on vectors that another network made of them, meets the wording of chats.

It shows an `.npz` file of feature vectors with two domains, and a classifier that cosda trains on the first of them.

    pip install cosda
    python text_features.py        # writes texts.npz and runs/
"""

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import cosda

WORDS = {  # words of newspapers, of both, of chats
    "weather": ("storm frost temperature precipitation", "rain sun snow", "freezing soaked umbrella brr"),
    "sport": ("championship league referee defeat", "match goal team", "smashed champs kick ref"),
    "cooking": ("ingredients simmer portion chef", "oven recipe butter", "yummy tasty nom fry"),
    "travel": ("departure itinerary luggage airline", "hotel flight beach", "backpack hostel hop bags"),
}
FILLING = ("the report said on monday that officials expect", "lol omg so like totally haha gonna just wait")
rng = np.random.default_rng(0)


def sentences(chat):
    """600 of them, each with four words of its topic; two in five such words are used in news and chats alike."""
    for number in range(600):
        news_words, both, chat_words = map(str.split, WORDS[list(WORDS)[number % 4]])
        own = chat_words if chat else news_words
        words = [rng.choice(both if rng.random() < 0.4 else own) for _ in range(4)]
        yield " ".join(rng.permutation([*words, *rng.choice(FILLING[chat].split(), 5)]))


# One vector for each text. Yours come from a network that knows language, as sentence-transformers has them:
# vectors = SentenceTransformer("all-MiniLM-L6-v2").encode(texts)
texts = [*sentences(chat=False), *sentences(chat=True)]
vectors = TruncatedSVD(24, random_state=0).fit_transform(TfidfVectorizer().fit_transform(texts)).astype(np.float32)
topics = np.arange(600) % 4
np.savez(
    "texts.npz",
    classes=list(WORDS),
    news_features=vectors[:600],
    news_labels=topics,
    chat_features=vectors[600:],
    chat_labels=topics,  # may be missing: adapting does not read them
)

domains = cosda.load_benchmark("texts.npz")
model = cosda.train_source(domains, "news", epochs=5).model
result = cosda.adapt(model, domains["chat"], "shot", carry="bank", epochs=5)

for data in domains:  # labels serve to measure, and nothing else
    before, after = cosda.evaluate(model, data).top1, cosda.evaluate(result.model, data).top1
    print(f"{data.name}: {before:.1%} before, {after:.1%} after")
print("verdict without labels:", result.verdict.verdict, *result.verdict.reasons, sep="\n  ")
