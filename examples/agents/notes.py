"""The notes that the examples answer from: short plain facts, which the small bundled model can read."""

from __future__ import annotations

SYSTEM = (
    "You answer questions from the documents. Give the value only. If documents differ, the last one counts. "
    "If no document says, answer: not stated."
)

NOTES = {
    "tarnovo.txt": (
        "About Tarnovo\n\nThe mayor of Tarnovo is Hugo Butler. Tarnovo lies on the river Besk. The post code of "
        "Tarnovo is KX-482. Mira Soldane has a flat in Tarnovo."
    ),
    "persisade.txt": (
        "Notes on Persisade\nPersisade is led by mayor Diego Tenden. The river in Persisade is the Olmar. Persisade "
        "has the post code LV-951. The home of Gizelask is in Persisade."
    ),
    "mira.txt": (
        "# About Mira Soldane\nMira Soldane works for Ritett Trading. Mira Soldane has a dog called Velmo. Mira "
        "Soldane carries badge ZH22. The teacher of Mira Soldane was Paul Raszia."
    ),
    "gizelask.txt": (
        "Notes on Gizelask\n\nGizelask has a job at Errale. Gizelask walks a dog named Dabis. The badge of Gizelask is "
        "QT71. Gizelask studied under Wardask Sargirett."
    ),
    "companies.txt": (
        "Ritett Trading\nSeat: Persisade\nDirector: Paul Raszia\nTax number: LV-114\n\nErrale\nSeat: Tarnovo\n"
        "Director: Hugo Butler\nTax number: KD-627"
    ),
    "shop.txt": (
        "The Prelgond sofa\n\nThe Prelgond sofa costs 84 crowns. The Prelgond sofa is made by Errale. The Konlaider "
        "lamp sells for 27 crowns. The designer of the Konlaider lamp is Wardask Sargirett."
    ),
    "policies.txt": (
        "Pranrond expense policy\nOwner: Diego Tenden\nLimit: 36 crowns\nForm: AB-204\n\nThonnum refund policy\n"
        "Owner: Paul Raszia\nLimit: 55 crowns"
    ),
    "projects.txt": (
        "About project Elfolm\n\nProject Elfolm is led by Gizelask. The budget of project Elfolm is 61 crowns. Project "
        "Elfolm is done for Ritett Trading. The lead of project Talferus is Mira Soldane."
    ),
    "memory.txt": (
        "Memory:\n- The user was born in Tarnovo.\n- The user has a cat called Thonno.\n- The user sits at desk 14.\n"
        "- The piano stands at bay 2."
    ),
    "log.txt": (
        "Log:\n09:12 The Besker service runs on the host Galdel.\n09:20 The Besker service listens on port 47.\n"
        "09:41 The Besker service is watched by Paul Raszia."
    ),
}

QUESTIONS = (
    "Who is the mayor of Tarnovo?",
    "What is the dog of Mira Soldane called?",
    "How much does the Prelgond sofa cost?",
    "Who leads project Elfolm?",
    "Which river runs through Persisade?",
    "What is the limit in the Pranrond expense policy?",
    "Who runs Ritett Trading?",
    "Which company employs Gizelask?",
)
