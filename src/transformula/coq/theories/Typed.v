(* Formulas as they are typed: the definitions that a reader has to believe. There is no proof in this file. *)
Require Export Reals List NArith ZArith.
Require Import QArith.
Require Export Transformula.Transformer.
Open Scope R_scope.

(* A value; the condition under which it is defined, since Coq's functions are total; the number if it is written as one. *)
Record typed := Typed { result : R; domain : Prop; rational : option Q }.
Declare Scope typed_scope.
Delimit Scope typed_scope with typed.
Bind Scope typed_scope with typed.
Definition variable (x : R) : typed := Typed x True None.
Definition literal (n : Z) (d : positive) : typed :=
  Typed (match d with 1%positive => IZR n | _ => IZR n / IZR (Zpos d) end) True (Some (n # d)%Q).
Definition call (f : R -> R) (a : typed) : typed := Typed (f (result a)) (domain a) None.
Definition call_2 (f : R -> R -> R) (a b : typed) : typed := Typed (f (result a) (result b)) (domain a /\ domain b) None.
Definition if_ (condition : R -> Prop) (a : typed) : typed :=
  Typed (result a) (domain a /\ condition (result a)) (rational a).

Definition opposite (a : typed) : typed := Typed (- result a) (domain a) (option_map Qopp (rational a)).
Definition over (a b : typed) : typed :=
  Typed (result a / result b) (domain a /\ domain b /\ result b <> 0)
    match rational a, rational b with Some p, Some q => Some (p / q)%Q | _, _ => None end.
Infix "+" := (call_2 Rplus) : typed_scope.
Infix "-" := (call_2 Rminus) : typed_scope.
Infix "*" := (call_2 Rmult) : typed_scope.
Infix "/" := over : typed_scope.
Notation "- x" := (opposite x) : typed_scope.

(* What a formula may call; a variable of the same name hides it. *)
Definition v_pi : typed := variable PI.
Definition v_e : typed := variable (exp 1).
Definition v_E : typed := v_e.
Definition v_sin := call sin.
Definition v_cos := call cos.
Definition v_atan := call atan.
Definition v_exp := call exp.
Definition v_sinh := call sinh.
Definition v_cosh := call cosh.
Definition v_tanh := call tanh.
Definition v_abs := call Rabs.
Definition v_min := call_2 Rmin.
Definition v_max := call_2 Rmax.
Definition v_tan (a : typed) := call tan (if_ (fun x => cos x <> 0) a).
Definition v_sqrt (a : typed) := call sqrt (if_ (Rle 0) a).
Definition v_ln (a : typed) := call ln (if_ (Rlt 0) a).
Definition v_log := v_ln.

(* x^2; x^-2 = 1 / x^2; x^(3/2) = x^1 sqrt x; any other power is exp (b ln a), for positive a. *)
Definition inverse_if (yes : bool) (a : typed) : typed := if yes then over (literal 1 1) a else a.
Definition power (a b : typed) : typed :=
  match option_map Qred (rational b) with
  | Some (n # 1)%Q => inverse_if (Z.ltb n 0) (call (fun x => x ^ Z.to_nat (Z.abs n)) a)
  | Some (n # 2)%Q => inverse_if (Z.ltb n 0) (call (fun x => x ^ Z.to_nat (Z.abs n / 2)) a * v_sqrt a)
  | _ => call_2 Rpower (if_ (Rlt 0) a) b
  end.
Infix "^" := power : typed_scope.

(* Functions that are short for others, as docs/functions.md defines them. *)
Section Short.
Local Open Scope typed_scope.
Variables u v w : typed.
Let one : typed := literal 1 1.
Let two : typed := literal 2 1.
Definition v_log2 := v_log u / v_log two.
Definition v_log10 := v_log u / v_log (literal 10 1).
Definition v_log1p := v_log (one + u).
Definition v_exp2 := two ^ u.
Definition v_expm1 := v_exp u - one.
Definition v_pow := u ^ v.
Definition v_hypot := v_sqrt (u ^ two + v ^ two).
Definition v_sec := one / v_cos u.
Definition v_csc := one / v_sin u.
Definition v_cot := v_cos u / v_sin u.
Definition v_sech := one / v_cosh u.
Definition v_csch := one / v_sinh u.
Definition v_coth := v_cosh u / v_sinh u.
Definition v_sigmoid := (one + v_tanh (u / two)) / two.
Definition v_logit := v_log (u / (one - u)).
Definition v_softplus := v_log (one + v_exp u).
Definition v_relu := v_max u (literal 0 1).
Definition v_silu := u * (one + v_tanh (u / two)) / two.
Definition v_softsign := u / (one + v_abs u).
Definition v_clip := v_min (v_max u v) w.
Definition v_radians := u * v_pi / literal 180 1.
Definition v_degrees := u * literal 180 1 / v_pi.
End Short.

(* The box: of no use to a proof unless both ends are defined. And the goal. *)
Definition inside (low : typed) (x : R) (high : typed) : Prop :=
  domain low -> domain high -> result low <= x <= result high.
Definition matches (computed : R) (formula : typed) (bound : R) : Prop :=
  domain formula /\ Rabs (computed - result formula) <= bound.
