"""Attributes of people, the user, cities and companies: how each is stated, labelled and asked for."""

from __future__ import annotations

from typing import Final

from hypic_agents.quality.worlds.schema import attribute

PERSON: Final = (
    attribute("city", "city", "lives in {v}|has a flat in {v}",
              "the home of {e} is in {v}|{v} is where {e} lives|{v} is the home town of {e}",
              "Where does {e} live?|In which city does {e} live?|What is the home town of {e}?",
              "the city where {e} lives|the home town of {e}", label="home town"),
    attribute("employer", "company", "works for {v}|has a job at {v}|is employed by {v}",
              "the employer of {e} is {v}|{v} employs {e}",
              "Who does {e} work for?|Which company employs {e}?|What is the employer of {e}?",
              "the company that employs {e}|the employer of {e}"),
    attribute("dog", "word", "has a dog called {v}|walks a dog named {v}",
              "the dog of {e} is called {v}|{v} is the name of {e}'s dog",
              "What is the dog of {e} called?|What is the name of {e}'s dog?|Which dog does {e} have?"),
    attribute("badge", "code", "carries badge {v}|has badge {v}",
              "the badge of {e} is {v}|badge {v} belongs to {e}",
              "What is the badge of {e}?|Which badge does {e} carry?|What is on the badge of {e}?"),
    attribute("teacher", "person", "was taught by {v}|studied under {v}",
              "the teacher of {e} was {v}|{v} taught {e}",
              "Who taught {e}?|Who was the teacher of {e}?|Under whom did {e} study?",
              "the teacher of {e}|the person who taught {e}"),
)  # fmt: skip

USER: Final = (
    attribute("cat", "word", "has a cat called {v}|keeps a cat named {v}",
              "the cat of {e} is called {v}|{v} is the name of {e}'s cat",
              "What is the cat of {e} called?|What is the name of {e}'s cat?|Which cat does {e} have?"),
    attribute("birth town", "city", "was born in {v}|comes from {v}",
              "the birth town of {e} is {v}|{v} is where {e} was born",
              "Where was {e} born?|What is the birth town of {e}?|In which city was {e} born?",
              "the city where {e} was born|the birth town of {e}"),
    attribute("desk", "#", "sits at desk {v}|likes to work at desk {v}",
              "the desk of {e} is number {v}|desk {v} belongs to {e}",
              "At which desk does {e} sit?|What is the desk of {e}?|Which desk belongs to {e}?"),
)  # fmt: skip

CITY: Final = (
    attribute("mayor", "person", "has {v} as its mayor|is led by mayor {v}",
              "the mayor of {e} is {v}|{v} is the mayor of {e}",
              "Who is the mayor of {e}?|Who leads {e} as mayor?|What is the mayor of {e} called?",
              "the mayor of {e}|the person who leads {e} as mayor"),
    attribute("river", "word", "lies on the river {v}|stands at the river {v}",
              "the river in {e} is the {v}|the river {v} runs through {e}",
              "Which river runs through {e}?|What is the river in {e}?|On which river does {e} lie?"),
    attribute("post code", "code", "has the post code {v}|uses post code {v}",
              "the post code of {e} is {v}|letters to {e} need the post code {v}",
              "What is the post code of {e}?|Which post code does {e} have?|What post code do letters to {e} need?"),
)  # fmt: skip

COMPANY: Final = (
    attribute("seat", "city", "has its seat in {v}|is based in {v}",
              "the seat of {e} is {v}|{v} is the seat of {e}|the head office of {e} is in {v}",
              "Where is {e} based?|What is the seat of {e}?|In which city does {e} have its seat?",
              "the city where {e} is based|the seat of {e}"),
    attribute("director", "person", "is run by {v}|has {v} as its director",
              "the director of {e} is {v}|{v} runs {e}",
              "Who runs {e}?|Who is the director of {e}?|What is the director of {e} called?",
              "the director of {e}|the person who runs {e}"),
    attribute("tax number", "code", "has the tax number {v}|pays tax under {v}",
              "the tax number of {e} is {v}|{v} is the tax number of {e}",
              "What is the tax number of {e}?|Which tax number does {e} have?|Under what number does {e} pay tax?"),
)  # fmt: skip
