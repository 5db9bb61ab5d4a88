import pytest

pytest.register_assert_rewrite("treadle.testing.store_contract")
