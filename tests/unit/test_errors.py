from pytest_sme2.errors import LONGEST_MESSAGE, BaselineError, Sme2Error


def test_a_message_that_quotes_a_huge_value_keeps_its_place_and_its_remedy() -> None:
    text = str(BaselineError(f"/a/file.json: is {'x' * 1_000_000}. Remove it."))
    assert len(text) <= LONGEST_MESSAGE
    assert text.startswith("/a/file.json: is xxx")
    assert text.endswith("xxx. Remove it.")
    assert "letters left out" in text


def test_a_message_of_usual_length_stays_as_it_is() -> None:
    assert str(Sme2Error("y" * LONGEST_MESSAGE)) == "y" * LONGEST_MESSAGE
