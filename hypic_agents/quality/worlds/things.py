"""Attributes of products, policies, projects, services and shipments: how each is stated, labelled and asked for."""

from __future__ import annotations

from typing import Final

from hypic_agents.quality.worlds.schema import attribute

PRODUCT: Final = (
    attribute("maker", "company", "is made by {v}|comes from {v}",
              "the maker of {e} is {v}|{v} makes {e}",
              "Who makes {e}?|Which company makes {e}?|What is the maker of {e}?",
              "the company that makes {e}|the maker of {e}"),
    attribute("price", "#crowns", "costs {v}|sells for {v}",
              "the price of {e} is {v}|you pay {v} for {e}",
              "How much does {e} cost?|What is the price of {e}?|What do you pay for {e}?"),
    attribute("designer", "person", "was designed by {v}|was drawn by {v}",
              "the designer of {e} is {v}|{v} designed {e}",
              "Who designed {e}?|Who is the designer of {e}?|By whom was {e} designed?",
              "the designer of {e}|the person who designed {e}"),
    attribute("part number", "code", "has the part number {v}|is listed as {v}",
              "the part number of {e} is {v}|use part number {v} for {e}",
              "What is the part number of {e}?|Which part number does {e} have?|How is {e} listed?"),
)  # fmt: skip

POLICY: Final = (
    attribute("owner", "person", "is kept by {v}|is owned by {v}",
              "the owner of {e} is {v}|{v} looks after {e}",
              "Who owns {e}?|Who is the owner of {e}?|Who looks after {e}?",
              "the owner of {e}|the person who owns {e}"),
    attribute("limit", "#crowns", "allows up to {v}|sets a limit of {v}",
              "the limit in {e} is {v}|under {e} you may spend {v}",
              "What is the limit in {e}?|How much does {e} allow?|How much may you spend under {e}?"),
    attribute("form", "code", "uses form {v}|asks for form {v}",
              "the form for {e} is {v}|under {e} you fill in form {v}",
              "Which form does {e} use?|What is the form for {e}?|Which form must you fill in under {e}?"),
)  # fmt: skip

PROJECT: Final = (
    attribute("lead", "person", "is led by {v}|has {v} in the lead",
              "the lead of {e} is {v}|{v} leads {e}",
              "Who leads {e}?|Who is the lead of {e}?|By whom is {e} led?",
              "the lead of {e}|the person who leads {e}"),
    attribute("budget", "#crowns", "has a budget of {v}|may spend {v}",
              "the budget of {e} is {v}|we set aside {v} for {e}",
              "What is the budget of {e}?|How much may {e} spend?|How much money was set aside for {e}?"),
    attribute("client", "company", "is done for {v}|was ordered by {v}",
              "the client of {e} is {v}|{v} ordered {e}",
              "Who is the client of {e}?|Which company ordered {e}?|For whom is {e} done?",
              "the client of {e}|the company that ordered {e}"),
)  # fmt: skip

SERVICE: Final = (
    attribute("host", "word", "runs on the host {v}|was started on host {v}",
              "the host of {e} is {v}|host {v} runs {e}",
              "On which host does {e} run?|What is the host of {e}?|Which host runs {e}?"),
    attribute("port", "#", "listens on port {v}|uses port {v}",
              "the port of {e} is {v}|port {v} belongs to {e}",
              "On which port does {e} listen?|What is the port of {e}?|Which port does {e} use?"),
    attribute("contact", "person", "is watched by {v}|has {v} as its contact",
              "the contact for {e} is {v}|{v} watches {e}",
              "Who watches {e}?|Who is the contact for {e}?|Whom do you call about {e}?",
              "the contact for {e}|the person who watches {e}"),
)  # fmt: skip

SHIPMENT: Final = (
    attribute("buyer", "person", "was bought by {v}|is meant for {v}",
              "the buyer of {e} is {v}|{v} bought {e}",
              "Who bought {e}?|Who is the buyer of {e}?|For whom is {e} meant?",
              "the buyer of {e}|the person who bought {e}"),
    attribute("total", "#crowns", "is worth {v}|comes to {v}",
              "the total of {e} is {v}|the bill for {e} says {v}",
              "What is the total of {e}?|How much is {e} worth?|What does the bill for {e} say?"),
    attribute("destination", "city", "is on its way to {v}|is sent to {v}",
              "the destination of {e} is {v}|{v} is where {e} goes",
              "Where is {e} sent?|What is the destination of {e}?|To which city does {e} go?",
              "the city where {e} goes|the destination of {e}"),
)  # fmt: skip
