import os

from pytest_sme2.errors import LONGEST_MESSAGE, BaselineError, ModelError, Sme2Error


def test_a_message_that_quotes_a_huge_value_keeps_its_place_and_its_remedy() -> None:
    text = str(BaselineError(f"/a/file.json: is {'x' * 1_000_000}. Remove it."))
    assert len(text) <= LONGEST_MESSAGE
    assert text.startswith("/a/file.json: is xxx")
    assert text.endswith("xxx. Remove it.")
    assert "letters left out" in text


def test_a_message_of_usual_length_stays_as_it_is() -> None:
    assert str(Sme2Error("y" * LONGEST_MESSAGE)) == "y" * LONGEST_MESSAGE


def test_a_message_with_a_name_that_is_not_text_can_be_passed_on() -> None:
    message = str(ModelError(f"{os.fsdecode(b'caf' + bytes([0xE9]))} is missing"))
    assert message == "caf\\udce9 is missing"
    assert message.encode()
